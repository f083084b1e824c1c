"""Three measures of a method's update at the initial policy of a world, each with a standard error.

g is the update's direction −∂loss/∂logits, [S, V] as one vector, of all updates that a `Learner` makes on one batch of
`BATCH` groups of `GROUP` rollouts. E is the expectation over batches, approximated by populations of `POPULATION`
batches; errors are a jackknife over `REPLICATES` populations. All methods see the same rollouts.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TextIO

import torch
from torch import Tensor

from ...base.errors import Unsupported
from ...base.text import number
from ...core.learner import Learner
from ...core.objective import Objective
from ...core.on_policy import RatioCheck
from ...core.seeds import keyed_generator
from ..page.text import Cell, Row, Table, print_parts, visible
from .policy import Walk, drifted, gradient, lacking, rollouts, truth, view, walk
from .worlds import World

GROUP, BATCH = 8, 8  # rollouts of a group, groups of an update
POPULATION, REPLICATES = 16, 8  # batches of a population; number of populations

MEASURES = {
    "cosine": "Cosine of the expected update with the true gradient: 1 is unbiased in direction.",
    "progress": "Progress of an update of 64 rollouts along the true gradient, per step of its root mean square: 1 is "
    "all.",
    "moved": "The same once the policy is 0.01 nats a token further up the true gradient than the one that sampled; "
    "the unit is the step on policy.",
}


class Number(NamedTuple):
    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of a method in a world. R replicates (populations), K batches of each, D logits.

    `whole` [R, D] and `moved` [R, D], after a drift, take a population as one batch; `single` [R, K, D] each batch.
    """

    whole: Tensor
    single: Tensor
    moved: Tensor


def measure(objective: Objective, world: World, *, perfect: bool = False) -> dict[str, Number]:
    """The `MEASURES` of a method in a world; `perfect` replaces its credit by Q − V of every token."""
    of = directions(objective, world, perfect=perfect)
    on, off = (gradient(world, logits).flatten() for logits in (world.initial, drifted(world)))
    on, off = on / on.norm(), off / off.norm()

    def cosine(whole: Tensor) -> float:
        return max(-1.0, min(1.0, float(whole.mean(0) @ on) / _root(_squared_mean(whole))))

    def progress(single: Tensor) -> float:
        return float((single @ on).mean()) / _root(_square(single))

    def moved(single: Tensor, at: Tensor) -> float:
        return float(at.mean(0) @ off) / _root(_square(single))

    return {
        "cosine": _jackknife(cosine, of.whole),
        "progress": _jackknife(progress, of.single),
        "moved": _jackknife(moved, of.single, of.moved),
    }


def directions(objective: Objective, world: World, *, perfect: bool = False) -> Directions:
    """The directions of a method on the rollouts that all methods see; arguments as in `measure`."""
    if missing := lacking(objective):
        raise Unsupported(f"{objective.name} needs {missing}, which a world does not give: leave it out")
    initial, after = world.initial, drifted(world)
    whole, single, moved = [], [], []
    for replicate in range(REPLICATES):
        draws = keyed_generator(replicate, f"exact/{world.name}/init")
        population = walk(world, initial, BATCH * POPULATION, GROUP, draws)
        whole.append(direction(objective, world, population, initial, perfect=perfect).flatten())
        moved.append(direction(objective, world, population, after, perfect=perfect).flatten())
        for rows in torch.arange(len(population.group)).split(GROUP * BATCH):
            single.append(direction(objective, world, population.rows(rows), initial, perfect=perfect).flatten())
    return Directions(torch.stack(whole), torch.stack(single).unflatten(0, (REPLICATES, -1)), torch.stack(moved))


def direction(objective: Objective, world: World, walked: Walk, now: Tensor, *, perfect: bool = False) -> Tensor:
    """[S, V] direction of all updates on rollouts of the initial policy, at the policy with the logits `now` [S, V]."""
    check = RatioCheck() if now is world.initial else None
    learner = Learner(objective, length=world.length, seed=0, ratio=check)
    facts = rollouts(world, walked, world.initial, objective.needs)
    credit = walked.taken(truth(world, world.initial).advantage) if perfect else None
    total = torch.zeros_like(now)
    for update in learner.begin(facts, credit=credit).updates():
        logits = now.detach().requires_grad_()
        policy = view(logits, walked.rows(update.rows), objective.needs)
        if update.observes:
            update.observe(policy)
        loss = update.evaluate(policy)[1].value
        learner.check(update)
        if loss.requires_grad:
            total = total - torch.autograd.grad(loss, logits)[0]
    return total


def _jackknife(statistic: Callable[..., float], *replicates: Tensor) -> Number:
    """A statistic of tensors [R, ...], and its standard error from leaving out each replicate in turn."""
    count = len(replicates[0])
    kept = [torch.arange(count) != left for left in range(count)]
    without = [statistic(*(x[k] for x in replicates)) for k in kept]
    mean = sum(without) / count
    return Number(statistic(*replicates), math.sqrt((count - 1) / count * sum((x - mean) ** 2 for x in without)))


def _squared_mean(g: Tensor) -> Tensor:
    """Unbiased estimate of |E g|² from replicates [R, D], by products of different replicates."""
    count = len(g)
    return (g.sum(0).square().sum() - g.square().sum()) / (count * (count - 1))


def _square(single: Tensor) -> Tensor:
    """E|g|² = |E g|² + E|g − E g|² from populations [R, K, D] of K batches, which deviate from its mean with
    (K − 1)/K of the variance.
    """
    mean, count = single.mean(1), single.shape[1]
    noise = (single - mean[:, None]).square().sum(-1).mean() * count / (count - 1)
    return mean.mean(0).square().sum() + noise


def _root(square: Tensor) -> float:
    """The square root; infinite for 0, so that a method whose g is 0 makes no progress."""
    return float(square) ** 0.5 if square > 1e-30 else math.inf


BASE, PERFECT = "dapo", "perfect credit"
Results = Mapping[str, Mapping[str, Mapping[str, Number]]]  # method -> world -> measure


def show(results: Results, worlds: Sequence[str], stream: TextIO) -> None:
    """Prints the verdicts, and a table of worlds and methods for each measure."""
    head = ["world", *(visible(label, limit=60) for label in results)]
    parts: list[Table | str] = [*verdicts(results, worlds), ""]
    for key, meaning in MEASURES.items():
        rows = [Row(world, [_cell(found[world][key]) for found in results.values()]) for world in worlds]
        parts += [Table(head, rows, title=key), meaning, ""]
    print_parts(parts, stream)


def verdicts(results: Results, worlds: Sequence[str]) -> Iterator[str]:
    """Sentences: in how many worlds each method is above and below DAPO by two standard errors, by measure."""
    for label, found in results.items():
        if label in (BASE, PERFECT):
            continue
        told = []
        for key in MEASURES:
            signs = [_sign(found[world][key], results[BASE][world][key]) for world in worlds]
            told.append(f"{key} above in {signs.count(1)} and below in {signs.count(-1)}")
        many = f"{len(worlds)} world{'s' * (len(worlds) > 1)}"
        yield f"{visible(label, limit=60)} beside DAPO, in {many}: {'; '.join(told)}."


def _sign(x: Number, base: Number) -> int:
    far = abs(x.value - base.value) > max(2 * math.hypot(x.error, base.error), 1e-4)
    return (1 if x.value > base.value else -1) if far else 0


def _cell(x: Number) -> Cell:
    return Cell(number(round(x.value, 3) + 0.0), f"±{number(round(x.error, 6), 2)}")

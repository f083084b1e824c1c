"""Three measures of a method's update at the initial policy of a world, each with a standard error.

The policy's true value and gradient are computed in float64 by linear algebra; rollouts are sampled from it. Axes: N
rollouts, T tokens (padded), S states, V tokens of the vocabulary.

g is the update's direction −∂loss/∂logits, [S, V] as one vector, of all updates that a `Learner` makes on one batch of
`BATCH` groups of `GROUP` rollouts. E is the expectation over batches, approximated by populations of `POPULATION`
batches; errors are a jackknife over `REPLICATES` populations. All methods see the same rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TextIO

import torch
from torch import Tensor

from ...base.errors import Unsupported
from ...base.text import number
from ...core.facts import facts_of
from ...core.learner import Learner
from ...core.objective import Objective
from ...core.on_policy import RatioCheck
from ...core.seeds import keyed_generator
from ...core.types import FACTS, Policy, Rollouts
from ..page.text import Cell, Row, Table, print_parts, visible
from .worlds import World

DRIFT = 0.01  # nats per token, KL(sampler ‖ policy) after a drift


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact properties of a policy, all with the graph to the logits. Axes: S states, V tokens.

    Args:
        J: mean reward.
        value: [S] mean reward from a state on.
        advantage: [S, V] Q − V of a token, its mean effect on the reward.
        visits: [S] mean number of visits in a response.
    """

    J: Tensor
    value: Tensor
    advantage: Tensor
    visits: Tensor


def truth(world: World, logits: Tensor) -> Truth:
    p, states, goes_on = logits.softmax(-1), len(logits), world.next >= 0
    source = torch.arange(states)[:, None].expand_as(world.next)[goes_on]
    P = torch.zeros(states, states, dtype=p.dtype).index_put((source, world.next[goes_on]), p[goes_on], True)
    system = torch.eye(states, dtype=p.dtype) - P
    start = torch.zeros(states, dtype=p.dtype).index_put((world.starts,), world.shares, True)
    value = torch.linalg.solve(system, (p * world.reward).sum(-1))
    q = world.reward + torch.where(goes_on, value[world.next.clamp(min=0)], 0.0)
    return Truth(start @ value, value, q - value[:, None], torch.linalg.solve(system.T, start))


def gradient(world: World, logits: Tensor) -> Tensor:
    """[S, V] gradient of the mean reward to the logits."""
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(truth(world, logits).J, logits)[0]


def divergence(world: World, sampler: Tensor, other: Tensor) -> float:
    """KL(sampler ‖ other) of the next token, nats, mean over the tokens of the sampler's responses."""
    logp, visits = sampler.log_softmax(-1), truth(world, sampler).visits
    kl = (logp.exp() * (logp - other.log_softmax(-1))).sum(-1)
    return float(visits @ kl / visits.sum())


def drifted(world: World) -> Tensor:
    """[S, V] logits up the true gradient from the initial policy, at KL `DRIFT`, by bisection."""
    way, low, high = gradient(world, world.initial), 0.0, 1.0
    while divergence(world, world.initial, world.initial + high * way) < DRIFT:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if divergence(world, world.initial, world.initial + middle * way) < DRIFT:
            low = middle
        else:
            high = middle
    return world.initial + high * way


# Inputs that a world gives besides those that are functions of the next-token distributions.
_GIVEN = {"rollout_logprob", "ref_logprob", "token_ids", "rewards", "token_reward", "turn", "anchor", "value"}


@dataclass(frozen=True, eq=False)
class Walk:
    """Sampled paths: states, tokens and mask [N, T], reward and group [N]; G consecutive rows are a group."""

    states: Tensor
    tokens: Tensor
    mask: Tensor
    reward: Tensor
    group: Tensor

    def rows(self, index: slice | Tensor) -> Walk:
        return Walk(*(x[index] for x in (self.states, self.tokens, self.mask, self.reward, self.group)))

    def taken(self, logp: Tensor) -> Tensor:
        """[N, T], the numbers of the sampled tokens from a table [S, V]."""
        return logp[self.states, self.tokens]


def walk(world: World, logits: Tensor, groups: int, size: int, draws: torch.Generator) -> Walk:
    """Paths of the policy with these logits [S, V], in `groups` groups of `size`; prompts by their shares.

    In each state tokens are sampled as evenly as their probabilities allow (systematic sampling, in random order).
    """
    start = world.starts[_dealt(world.shares.cumsum(0).expand(groups, -1), torch.zeros(groups).long(), draws)]
    at, group = start.repeat_interleave(size), torch.arange(groups).repeat_interleave(size)
    rows, cumulative = len(at), logits.softmax(-1).cumsum(-1)
    states, tokens = torch.zeros(2, world.length, rows, dtype=torch.long)
    mask, reward = torch.zeros(world.length, rows, dtype=torch.bool), torch.zeros(rows, dtype=logits.dtype)
    alive = torch.arange(rows)
    for t in range(world.length):
        here = at[alive]
        token = _dealt(cumulative[here], here, draws)
        states[t, alive], tokens[t, alive], mask[t, alive] = here, token, True
        reward[alive] += world.reward[here, token]
        at[alive] = world.next[here, token]
        alive = alive[at[alive] >= 0]
        if not len(alive):
            break
    return Walk(states.T, tokens.T, mask.T, reward, group)


def lacking(objective: Objective) -> str:
    """What a world does not give and the objective needs, for a message; "" if it runs."""
    given = _GIVEN | {name for name, fact in FACTS.items() if fact.formula}
    missing = sorted(objective.needs - given)
    return missing[0] if missing else ""


def rollouts(world: World, walked: Walk, logits: Tensor, needs: frozenset[str]) -> Rollouts:
    """The inputs of an objective with these needs; the policy with these logits sampled, and is the reference."""
    logp, mask, reward = logits.log_softmax(-1), walked.mask, walked.reward
    old = walked.taken(logp)
    optional = {
        "rollout_logprob": lambda: old,
        "ref_logprob": lambda: old,
        "token_ids": lambda: walked.tokens,
        "rewards": lambda: reward[:, None],
        "token_reward": lambda: torch.where(mask, walked.taken(world.reward), 0.0),
        # Each token is an action, so it is a turn of its own.
        "turn": lambda: torch.arange(mask.shape[1]).expand(mask.shape),
        "anchor": lambda: walked.states,
        "value": lambda: truth(world, logits).value.detach()[walked.states],  # that of a perfect critic
    }
    known = {"mask": mask, "reward": reward, "group": walked.group, "old_logprob": old}
    known |= {name: make() for name, make in optional.items() if name in needs}
    return Rollouts.of(known | _by_formula(logp, walked, needs - facts_of(Policy).keys()))


def view(logits: Tensor, walked: Walk, needs: frozenset[str]) -> Policy:
    """The predictions at the sampled tokens of the policy with these logits [S, V], with their graph."""
    logp = logits.log_softmax(-1)
    return Policy(logprob=walked.taken(logp), **_by_formula(logp, walked, needs & facts_of(Policy).keys()))


def _by_formula(logp: Tensor, walked: Walk, needs: frozenset[str]) -> dict[str, Tensor]:
    """The needed inputs [N, T] that are functions of the next-token distributions."""
    return {
        name: fact.formula(logp)[walked.states]
        for name, fact in FACTS.items()
        if fact.formula is not None and name in needs
    }


def _dealt(cumulative: Tensor, state: Tensor, draws: torch.Generator) -> Tensor:
    """[M] tokens from rows of cumulative probabilities [M, V]; rows with the same `state` [M] share them evenly."""
    shuffled = torch.randperm(len(state), generator=draws)
    order = shuffled[state[shuffled].argsort(stable=True)]
    count = torch.bincount(state)
    first = count.cumsum(0) - count
    rank = torch.arange(len(state)) - first[state[order]]
    offset = torch.rand(len(count), dtype=torch.float64, generator=draws)
    place = torch.empty(len(state), dtype=torch.float64)
    place[order] = (rank + offset[state[order]]) / count[state[order]]
    token = (cumulative.double() <= place[:, None]).sum(-1)
    return token.clamp(max=cumulative.shape[-1] - 1)  # by rounding, the last sum may be below 1


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
    """Sentences: in how many worlds each method is larger and smaller than DAPO by two standard errors, by measure."""
    for label, found in results.items():
        if label in (BASE, PERFECT):
            continue
        told = []
        for key in MEASURES:
            signs = [_sign(found[world][key], results[BASE][world][key]) for world in worlds]
            told.append(f"{key} larger in {signs.count(1)} and smaller in {signs.count(-1)}")
        many = f"{len(worlds)} world{'s' * (len(worlds) > 1)}"
        yield f"{visible(label, limit=60)} compared with DAPO, in {many}: {'; '.join(told)}."


def _sign(x: Number, base: Number) -> int:
    far = abs(x.value - base.value) > max(2 * math.hypot(x.error, base.error), 1e-4)
    return (1 if x.value > base.value else -1) if far else 0


def _cell(x: Number) -> Cell:
    return Cell(number(round(x.value, 3) + 0.0), f"±{number(round(x.error, 6), 2)}")

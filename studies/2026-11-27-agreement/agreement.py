"""Does it help to weight classes of tokens by how well groups agree on them? Writes agreement.json and a section of
docs/composition.md.

    python agreement.py            the runs that agreement.json lacks, and the section: half an hour of a free core
    python agreement.py --check    whether the section is what the numbers say

A class of tokens is a third of the batch's tokens by old entropy, with one sign of the advantage: six classes. Of the
earlier batches each class has S, the squared length of the sum over groups of its gradients, and W, the square that
independent noise of the groups would give this sum. Its tokens weigh max(0, 1 - W / S) in the next batch: 1 if all groups
ask for the same step, 0 if the sum is no longer than noise. It costs no rollouts. It is tried where `tokenpo exact`
trains with noise: a network whose states share weights, batches of eight groups, Adam, each contestant at its best of 11
step sizes in each of twelve worlds.

Written down before the runs: "agreement" is DAPO with these weights. It gains if its area less DAPO's, mean over the
worlds, is shown to be above 0 (sign flips over 12 seeds at 5 %) and is 0.01 or more; then it is tried on the tasks of the
KL law. It is alike if both one-sided tests show that the mean lies within 0.01, undecided otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

import tokenpo
from tokenpo.base.files import write_whole
from tokenpo.core.parts import BatchWeight
from tokenpo.core.seeds import keyed_generator
from tokenpo.core.types import Batch
from tokenpo.evidence.compare import paired
from tokenpo.lab.exact.contestant import Contestant, direction
from tokenpo.lab.exact.model import Network
from tokenpo.lab.exact.sampling import Walk, rollouts, walk
from tokenpo.lab.exact.training import GRID, NOISE, NOISY, SEEDS, START, UPDATES, Adam
from tokenpo.lab.exact.truth import truth
from tokenpo.lab.exact.worlds import WORLDS

MARGIN, LEVEL = 0.01, 0.05
CONTESTANTS = ("dapo", "agreement")
THIRDS, KEPT = 3, 0.9  # classes by entropy; decay of the running means of S and W, per batch
GROUPS, GROUP = UPDATES * max(1, 8 // NOISE), 8  # of a rollout batch, as in noisy training; of a group

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tools" / "site")]
NUMBERS, PAGE = HERE / "agreement.json", HERE.parents[1] / "docs" / "composition.md"

from layout import table, write_section  # noqa: E402

Runs = dict[str, float]  # world/contestant/size/seed: mean reward over the run


class ByClass(BatchWeight):
    """The weight of a token's class.

    Args:
        ends: upper ends of the classes by entropy but the last, nats.
        weights: of the classes with advantage 0 or below, then of those above, each from low entropy to high.
    """

    ends: tuple[float, ...]
    weights: tuple[float, ...]
    reads = {"old_entropy"}

    def of_batch(self, batch: Batch) -> Tensor:
        entropy = batch.rollouts.need("old_entropy")
        return torch.tensor(self.weights, dtype=entropy.dtype)[classes(entropy, batch.credit.advantage, self.ends)]


def classes(entropy: Tensor, advantage: Tensor, ends: tuple[float, ...]) -> Tensor:
    """[N, T] int, the class of each token."""
    third = torch.bucketize(entropy.contiguous(), torch.tensor(ends, dtype=entropy.dtype))
    return third + THIRDS * (advantage > 0).long()


@dataclass
class Agreement:
    """S and W of each class [6], running means over the batches seen."""

    power: Tensor = field(default_factory=lambda: torch.zeros(2 * THIRDS, dtype=torch.float64))
    noise: Tensor = field(default_factory=lambda: torch.zeros(2 * THIRDS, dtype=torch.float64))

    def weights(self) -> tuple[float, ...]:
        """max(0, 1 - W / S); 1 for a class without a gradient so far."""
        share = torch.where(self.noise > 0, self.noise / self.power, 0.0)
        return tuple((1 - share).clamp(min=0).tolist())

    def see(self, parts: Tensor) -> None:
        """The gradients [groups, 6, D] of a batch."""
        power, noise = power_and_noise(parts)
        self.power = KEPT * self.power + (1 - KEPT) * power
        self.noise = KEPT * self.noise + (1 - KEPT) * noise


def power_and_noise(parts: Tensor) -> tuple[Tensor, Tensor]:
    """(S, W) [6] of gradients [groups, 6, D]: |Σ g|², and groups / (groups - 1) · Σ |g - mean|², its mean for noise."""
    groups = len(parts)
    spread = (parts - parts.mean(0)).square().sum((0, 2))
    return parts.sum(0).square().sum(-1), groups / (groups - 1) * spread


def by_class(model: Network, parameters: Tensor, walked: Walk, advantage: Tensor, kind: Tensor) -> Tensor:
    """[groups, 6, D], Σ A ∇log p over the tokens of each group and class, by the parameters."""
    parameters = parameters.detach().requires_grad_()
    logits = model.logits(parameters)
    pull = -logits.detach().softmax(-1)[walked.states] * advantage[..., None]
    pull.scatter_add_(-1, walked.tokens[..., None], advantage[..., None])
    total = torch.zeros(GROUPS, 2 * THIRDS, *logits.shape, dtype=logits.dtype)
    where = walked.group[:, None].expand_as(walked.states) - walked.group[0]
    at = walked.mask
    total.index_put_((where[at], kind[at], walked.states[at]), pull[at], accumulate=True)
    (found,) = torch.autograd.grad(logits, parameters, total.flatten(0, 1), is_grads_batched=True)
    return found.view(GROUPS, 2 * THIRDS, -1)


def run(model: Network, contestant: str, size: float, seed: int) -> float:
    """The mean over a run of the mean reward, before and after every rollout batch."""
    world, parameters, scale, seen = model.world, model.start(), Adam(), Agreement()
    dapo, logits = tokenpo.method("dapo"), model.logits(parameters)
    rewards = [float(truth(world, logits).J)]
    for batch in range(NOISY):
        walked = walk(world, logits, GROUPS, GROUP, keyed_generator(seed, f"agreement/{world.name}", batch), even=False)
        facts = rollouts(world, walked, logits, frozenset({"old_entropy"}))
        entropy, advantage = facts.need("old_entropy"), dapo.prepare(facts).advantage
        thirds = torch.arange(1, THIRDS, dtype=entropy.dtype) / THIRDS
        ends = tuple(entropy[walked.mask].quantile(thirds).tolist())
        weights = seen.weights() if contestant == "agreement" else (1.0,) * (2 * THIRDS)
        weighted = dataclasses.replace(dapo, name=contestant, weights=(ByClass(ends, weights),))
        here = Contestant(contestant, weighted)
        learner = here.learner(world, seed * NOISY + batch)
        seen.see(by_class(model, parameters, walked, advantage, classes(entropy, advantage, ends)))
        for update in here.begin(learner, world, walked, logits, logits).updates(minibatches=UPDATES):
            way = model.back(parameters, direction(learner, update, walked, logits))
            parameters = parameters + size * scale.scaled(way, first=False)
            logits = model.logits(parameters)
        rewards.append(float(truth(world, logits).J))
    return fmean(rewards)


def made() -> Runs:
    return json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.is_file() else {}


def complete(runs: Runs) -> None:
    """Makes what is missing: for each world and contestant a climb to its best size."""
    for name, world in WORLDS.items():
        model = Network(world())
        for contestant in CONTESTANTS:
            best(runs, name, contestant, model)
            write_whole(NUMBERS, json.dumps(runs, indent=0) + "\n")
        print(name, flush=True)


def best(runs: Runs, world: str, contestant: str, model: Network | None = None) -> list[float]:
    """The areas by seed at the size with the largest mean, found by climbing; with a model the missing runs are made."""

    @functools.cache
    def areas(k: int) -> list[float]:
        keys = [f"{world}/{contestant}/{GRID[k]:g}/{seed}" for seed in range(SEEDS)]
        for seed, key in enumerate(keys):
            if key not in runs and model is not None:
                runs[key] = float(f"{run(model, contestant, GRID[k], seed):.6g}")
        return [runs[key] for key in keys]

    at = START
    near = lambda k: [j for j in (k, k - 1, k + 1) if 0 <= j < len(GRID)]  # noqa: E731
    while (found := max(near(at), key=lambda k: fmean(areas(k)))) != at:
        at = found
    return areas(at)


def gains(runs: Runs) -> dict[str, list[float]]:
    """For each world the gains over DAPO by seed."""
    return {
        world: [a - b for a, b in zip(best(runs, world, "agreement"), best(runs, world, "dapo"), strict=True)]
        for world in WORLDS
    }


def verdict(means: list[float]) -> str:
    """Of the seeds' mean gains, as written down."""
    if float(paired.sign_flip(means)) <= LEVEL and abs(fmean(means)) >= MARGIN:
        return "gains" if fmean(means) > 0 else "loses"
    return "alike" if paired.equivalence(means, MARGIN) <= LEVEL else "undecided"


def page(runs: Runs) -> str:
    """The section of docs/composition.md."""
    by_world = gains(runs)
    means = [fmean(seed) for seed in zip(*by_world.values(), strict=True)]
    low, high = paired.bootstrap(means)
    rows = []
    for world, gain in by_world.items():
        ends = paired.bootstrap(gain)
        dapo = fmean(best(runs, world, "dapo"))
        rows.append((f"`{world}`", f"{dapo:.3f}", f"{fmean(gain):+.3f} ({ends[0]:+.3f} to {ends[1]:+.3f})"))
    rows = table(("world", "area of DAPO", "agreement less DAPO, with 95 % interval"), rows)
    words = {
        "gains": "It gains.", "loses": "It loses.", "alike": f"It trains alike, within {MARGIN:g}.",
        "undecided": "Nothing is shown.",
    }[verdict(means)]  # fmt: skip
    return TEMPLATE.format(words=words, mean=fmean(means), low=low, high=high, rows=rows)


TEMPLATE = """\
**{words}** The area of DAPO whose classes of tokens weigh by the agreement of earlier groups, less the area of DAPO, is
{mean:+.3f} in the mean over twelve worlds (95 % interval {low:+.3f} to {high:+.3f}).

<details markdown="1"><summary>Set-up, and every world</summary>

A class is a third of a batch's tokens by entropy, with one sign of the advantage. S is the squared length of the sum over
groups of its gradients in earlier batches, W what independent noise of the groups would make of it; its tokens weigh
max(0, 1 - W / S) in the next batch. Worlds, network, batches and Adam are those of [noisy training](exact.md), each
contestant at its best of 11 step sizes, 12 paired seeds.
[agreement.py](../studies/2026-11-27-agreement/agreement.py) names rule and margin and was committed before the runs.

{rows}

</details>"""


def main(arguments: list[str]) -> int:
    runs = made()
    if arguments != ["--check"]:
        torch.set_num_threads(1)
        complete(runs)
    return write_section(PAGE, "agreement", page(runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

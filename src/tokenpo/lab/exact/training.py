"""Training in a world, with the exact reward, entropy and length after each rollout batch of several updates.

Expected training uses batches that are sampled evenly over the responses and approximate infinitely large ones. A step
has length `SIZE` · |g| / scale in the logits, where scale² is a running mean of |g|² over the batches' first, on-policy
updates. Methods that differ only in the scale of their loss then train alike, but steps that clipping shortens in later
updates stay shorter. It shows fixed points, and entropy and length at equal reward.

Noisy training samples small batches and makes Adam steps in a network whose states share parameters. Too long a step
costs reward there, so that every method has a best step size; methods are compared at their own.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor

from ...core.seeds import keyed_generator
from .contestant import Contestant, direction
from .measures import POPULATION
from .model import Network, Table, divergence
from .sampling import walk
from .setting import USUAL, Setting
from .truth import truth
from .world import World

SIZE = 0.2  # step size of expected training, in the logits
GOAL = 0.9  # mean reward at which a run has arrived
UPDATES = 4  # minibatches per rollout batch
MOST, NOISY = 160, 30  # largest number of rollout batches in expected training; their number in noisy training
GRID = tuple(0.05 * 2**k for k in range(11))  # step sizes of noisy training, in the network's parameters
START = 6  # index in `GRID` where the search for the best begins
NOISE = 4  # a noisy update has the setting's number of groups divided by this
SEEDS = 12  # noisy runs per step size
_KEPT = 0.9  # decay of the running mean of |g|², per batch
_ADAM = (0.9, 0.999)  # Adam's betas


@dataclass
class Course:
    """The course of a run: lists with one number per policy, from the initial one on.

    Args:
        J: mean reward.
        entropy, length, sound: as in `Truth`.
        kl: for every rollout batch, KL(policy before ‖ policy after its updates), nats per token.
    """

    J: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    length: list[float] = field(default_factory=list)
    sound: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)

    def note(self, world: World, logits: Tensor) -> None:
        at = truth(world, logits)
        for name in ("J", "entropy", "length", "sound"):
            getattr(self, name).append(float(getattr(at, name)))

    @property
    def arrival(self) -> float:
        """Rollout batches until the mean reward reached `GOAL`, interpolated linearly; infinite if it never did."""
        for batch, J in enumerate(self.J):
            if J >= GOAL:
                before = self.J[batch - 1] if batch else J
                return batch - (J - GOAL) / (J - before) if before < J else float(batch)
        return math.inf

    def on_arrival(self, name: str) -> float:
        """Entropy, length or sound share when the mean reward reached `GOAL`; NaN if it never did."""
        if self.arrival == math.inf:
            return math.nan
        values, (part, low) = getattr(self, name), math.modf(self.arrival)
        return (1 - part) * values[int(low)] + part * values[int(low) + 1] if part else values[int(low)]

    @property
    def stands(self) -> bool:
        """Whether the mean reward has not changed for ten batches, as at a fixed point."""
        return len(self.J) > 10 and max(self.J[-11:]) - min(self.J[-11:]) < 1e-9

    @property
    def area(self) -> float:
        """Mean reward, averaged over the policies of the run."""
        return sum(self.J) / len(self.J)


def expected(contestant: Contestant, model: Table, seed: int, setting: Setting = USUAL) -> Course:
    """One run from the world's initial policy until the goal, a fixed point, or `MOST` batches."""
    groups = POPULATION * setting.batch
    return _trained(contestant, model, seed, setting, Norm(), SIZE, groups=groups, most=MOST, even=True)


def noisy(contestant: Contestant, network: Network, size: float, seed: int, setting: Setting = USUAL) -> Course:
    """One run of `NOISY` batches with Adam steps of size `size`."""
    groups = UPDATES * max(1, setting.batch // NOISE)
    return _trained(contestant, network, seed, setting, Adam(), size, groups=groups, most=NOISY, even=False)


def tuned(contestant: Contestant, network: Network, setting: Setting = USUAL) -> tuple[float, list[Course]]:
    """(step size of `GRID` with the largest mean area of noisy runs, found by hill climbing; its runs)."""

    @functools.cache
    def runs(k: int) -> list[Course]:
        return [noisy(contestant, network, GRID[k], seed, setting) for seed in range(SEEDS)]

    def area(k: int) -> float:
        return fmean(run.area for run in runs(k)) if 0 <= k < len(GRID) else -math.inf

    at = START
    while (best := max((at, at - 1, at + 1), key=area)) != at:
        at = best
    return GRID[at], runs(at)


def _trained(
    contestant: Contestant, model: Table, seed: int, setting: Setting, scale: Norm | Adam, size: float, *, groups: int,
    most: int, even: bool,
) -> Course:  # fmt: skip
    """A run of at most `most` batches of `groups` groups, sampled evenly, to the goal at most, or independently."""
    world, parameters, course = model.world, model.start(), Course()
    learner, logits = contestant.learner(world, seed), model.logits(parameters)
    course.note(world, logits)
    for batch in range(most):
        draws = keyed_generator(seed, f"exact/train/{world.name}/{even}", batch)
        sampler = setting.sampled_by(logits / contestant.heat(learner, logits))
        walked = walk(world, sampler, groups, setting.group, draws, even=even)
        step, before = contestant.begin(learner, world, walked, logits, sampler), logits
        for number, update in enumerate(step.updates(minibatches=UPDATES)):
            way = model.back(parameters, direction(learner, update, walked, logits))
            parameters = parameters + size * scale.scaled(way, first=number == 0)
            logits = model.logits(parameters)
        course.note(world, logits)
        course.kl.append(divergence(world, before, logits))
        if even and (course.J[-1] >= GOAL or course.stands):
            break
    return course


@dataclass
class Norm:
    """g divided by the root of a running mean of |g|² over first updates, which is corrected for its start at 0."""

    square: float = 0.0
    weight: float = 0.0

    def scaled(self, way: Tensor, first: bool) -> Tensor:
        if first:
            self.square = _KEPT * self.square + (1 - _KEPT) * float(way.square().sum())
            self.weight = _KEPT * self.weight + (1 - _KEPT)
        return way / (self.square / self.weight) ** 0.5 if self.square > 0 else torch.zeros_like(way)


@dataclass
class Adam:
    """Adam's step divided by √D, so that it has length 1 if all D parameters move equally."""

    mean: Tensor | float = 0.0
    square: Tensor | float = 0.0
    count: int = 0

    def scaled(self, way: Tensor, first: bool) -> Tensor:
        self.count += 1
        self.mean = _ADAM[0] * self.mean + (1 - _ADAM[0]) * way
        self.square = _ADAM[1] * self.square + (1 - _ADAM[1]) * way.square()
        mean, square = (x / (1 - k**self.count) for x, k in zip((self.mean, self.square), _ADAM, strict=True))
        return mean / (square.sqrt() + 1e-8) / way.numel() ** 0.5

"""Training in a world: rollout batches of several updates, with the exact reward, entropy and length after each batch.

A step has the length η · |g| / scale in the logits, where scale² is a running mean of |g|² over the first, on-policy
updates of the batches. Methods that differ only in the scale of their loss then train alike, and what clipping takes
away after the first update is not given back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.seeds import keyed_generator
from .contestant import Contestant, direction
from .measures import POPULATION
from .model import Table
from .sampling import walk
from .setting import USUAL, Setting
from .truth import truth
from .world import World

STEPS = {"small": 0.05, "middle": 0.2, "large": 0.8}  # η, length of an on-policy step in the logits
GOAL = 0.9  # mean reward at which a run has arrived
UPDATES = 4  # minibatches of a rollout batch
MOST, NOISY = 160, 30  # rollout batches of an exact run at most, and of a noisy one
_KEPT = 0.9  # of the running mean, from batch to batch
_ADAM = (0.9, 0.999)


@dataclass
class Course:
    """The course of a run: one number for each policy, from the initial one on."""

    J: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    length: list[float] = field(default_factory=list)
    sound: list[float] = field(default_factory=list)

    def note(self, world: World, logits: Tensor) -> None:
        at = truth(world, logits)
        for name, values in vars(self).items():
            values.append(float(getattr(at, name)))

    @property
    def arrival(self) -> float:
        """Rollout batches until the mean reward was `GOAL`, between two by straight lines; infinite if it never was."""
        for batch, J in enumerate(self.J):
            if J >= GOAL:
                before = self.J[batch - 1] if batch else J
                return batch - (J - GOAL) / (J - before) if before < J else float(batch)
        return math.inf

    def on_arrival(self, name: str) -> float:
        """Entropy, length or sound share where the mean reward was `GOAL`; NaN if it never was."""
        if self.arrival == math.inf:
            return math.nan
        values, (part, low) = getattr(self, name), math.modf(self.arrival)
        return (1 - part) * values[int(low)] + part * values[int(low) + 1] if part else values[int(low)]

    @property
    def stands(self) -> bool:
        """Whether the mean reward has not moved for ten batches: a fixed point."""
        return len(self.J) > 10 and max(self.J[-11:]) - min(self.J[-11:]) < 1e-9

    @property
    def area(self) -> float:
        """Mean of the mean reward over the run."""
        return sum(self.J) / len(self.J)


def train(
    contestant: Contestant, model: Table, size: float, *, even: bool, seed: int = 0, setting: Setting = USUAL
) -> Course:
    """One run from the world's initial policy with steps of η = `size`.

    `even`: updates of `POPULATION` batches that are dealt evenly, which stand for infinitely large ones, until the goal
    is reached, nothing moves, or after `MOST` batches; else of drawn batches, `NOISY` of them.
    """
    world, parameters, course = model.world, model.start(), Course()
    learner, scale = contestant.learner(world, seed), Adam() if setting.adam else Norm()
    logits = model.logits(parameters)
    course.note(world, logits)
    for batch in range(MOST if even else NOISY):
        draws = keyed_generator(seed, f"exact/train/{world.name}/{even}", batch)
        sampler = setting.sampled_by(logits / contestant.heat(learner, logits))
        groups = (POPULATION if even else UPDATES) * setting.batch
        walked = walk(world, sampler, groups, setting.group, draws, even=even)
        step = contestant.begin(learner, world, walked, logits, sampler)
        for number, update in enumerate(step.updates(minibatches=UPDATES)):
            way = model.back(parameters, direction(learner, update, walked, logits))
            parameters = parameters + size * scale.scaled(way, first=number == 0)
            logits = model.logits(parameters)
        course.note(world, logits)
        if even and (course.J[-1] >= GOAL or course.stands):
            break
    return course


@dataclass
class Norm:
    """g over the root of a running mean of |g|² of first updates, corrected for its start at 0."""

    square: float = 0.0
    weight: float = 0.0

    def scaled(self, way: Tensor, first: bool) -> Tensor:
        if first:
            self.square = _KEPT * self.square + (1 - _KEPT) * float(way.square().sum())
            self.weight = _KEPT * self.weight + (1 - _KEPT)
        return way / (self.square / self.weight) ** 0.5 if self.square > 0 else torch.zeros_like(way)


@dataclass
class Adam:
    """Adam's step, of every update and each parameter for itself, over √D: of length 1 where all D move alike."""

    mean: Tensor | float = 0.0
    square: Tensor | float = 0.0
    count: int = 0

    def scaled(self, way: Tensor, first: bool) -> Tensor:
        self.count += 1
        self.mean = _ADAM[0] * self.mean + (1 - _ADAM[0]) * way
        self.square = _ADAM[1] * self.square + (1 - _ADAM[1]) * way.square()
        mean, square = (x / (1 - k**self.count) for x, k in zip((self.mean, self.square), _ADAM, strict=True))
        return mean / (square.sqrt() + 1e-8) / way.numel() ** 0.5

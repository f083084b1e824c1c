"""Fingerprints: the push of a method on a token as a function of each property, and the distance of two of them."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tokenpo.core.trial import example
from tokenpo.core.types import FACTS

from .step import DRAWS, LENGTH, SIZE, Facts, pushes

EQUAL = 1e-6  # pushes that differ by less count as equal: far above rounding, far below what a picture shows
_EIGHTHS = tuple(i / SIZE for i in range(SIZE + 1))
_ENTROPIES = (0.01, 0.03, 0.06, 0.12, 0.25, 0.35, 0.5, 0.7, 0.9, 1.2, 1.6, 2.2, 3.0)
_ENTROPY = frozenset({"entropy", "old_entropy"})


def _logarithmic(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` numbers from low to high, in equal steps of the logarithm."""
    steps = torch.logspace(torch.tensor(low).log10(), torch.tensor(high).log10(), count, dtype=torch.float64)
    return tuple(float(f"{x:.4g}") for x in steps.tolist())


# Denser near the bounds of trust regions, but never on a bound, where rounding would decide.
_NEAR = tuple(round(0.695 + 0.03 * i, 3) for i in range(26))
RATIOS = tuple(sorted({*_NEAR, *(x for x in _logarithmic(0.1, 9.9, 25) if not 0.66 < x < 1.5)}))
PROBABILITIES = _logarithmic(0.001, 0.99, 17)


@dataclass(frozen=True)
class Axis:
    """A property that varies while the others have their defaults, or the values in `at`.

    Args:
        key: the field of `Facts` that varies; or, if `plain` names the field, a name for this axis.
        title, unit: texts above and below the panel.
        values: of the property, ascending.
        at: values of other properties.
        reads: only a method that reads one of these inputs can depend on it; empty if any method can.
        remembers: only a method with a memory can depend on it.
        plain: key of the same axis without `at`; if both curves are equal, this one is left out.
        logarithmic: the values are in steps of the logarithm.
    """

    key: str
    title: str
    unit: str
    values: tuple[float, ...]
    at: Mapping[str, float] = field(default_factory=dict)
    reads: Set[str] = frozenset()
    remembers: bool = False
    plain: str = ""
    logarithmic: bool = False

    @property
    def fact(self) -> str:
        return self.plain or self.key

    def facts(self, value: float) -> Facts:
        """The facts at one value of the axis."""
        if self.fact in {f.name for f in dataclasses.fields(Facts)}:
            return dataclasses.replace(Facts(), **{**self.at, self.fact: value})
        return Facts(other=((self.fact, value),))

    def matters(self, objective: Any) -> bool:
        """Whether the objective can depend on the property."""
        if self.remembers:
            return bool(getattr(objective, "memories", ()))
        return not self.reads or bool(self.reads & objective.needs)


AXES = (
    Axis("ratio", "ratio", "p / p_old", RATIOS, logarithmic=True),
    Axis("ratio_sure", "ratio at a sure position", "p / p_old, H 0.03 nats", RATIOS, {"entropy": 0.03},
         reads=_ENTROPY, plain="ratio", logarithmic=True),
    Axis("ratio_fork", "ratio at a fork", "p / p_old, H 1.6 nats", RATIOS, {"entropy": 1.6},
         reads=_ENTROPY, plain="ratio", logarithmic=True),
    Axis("ratio_fallen", "ratio where entropy fell", "p / p_old, H 0.35 → 0.1 nats", RATIOS, {"entropy_change": -0.25},
         reads={"entropy"}, plain="ratio", logarithmic=True),
    Axis("probability", "probability", "p_old", PROBABILITIES, logarithmic=True),
    Axis("probability_sure", "probability at a sure position", "p_old, H 0.03 nats", PROBABILITIES, {"entropy": 0.03},
         reads=_ENTROPY, plain="probability", logarithmic=True),
    Axis("entropy", "entropy", "H at the token, nats", _ENTROPIES, reads=_ENTROPY, logarithmic=True),
    Axis("response_ratio", "ratio of the response", "p / p_old of its other tokens", _logarithmic(0.5, 2.0, 21),
         logarithmic=True),
    Axis("response_entropy", "entropy of the response", "mean H of its other tokens", _ENTROPIES,
         reads=_ENTROPY, logarithmic=True),
    Axis("position", "position", f"of {LENGTH} tokens", (*map(float, range(1, LENGTH, 2)), LENGTH)),
    Axis("length", "length", "tokens of the response", (9.0, 10.0, 12.0, 14.0, 16.0, 20.0, 24.0, 28.0, 32.0)),
    Axis("accuracy", "accuracy of the group", "share right", _EIGHTHS),
    Axis("batch_accuracy", "accuracy of other groups", "share right", _EIGHTHS),
    Axis("batch_entropy", "entropy of other responses", "mean H, nats", _ENTROPIES[3:], logarithmic=True),
    Axis("earlier_accuracy", "accuracy of the batch before", "share right", _EIGHTHS, remembers=True),
    Axis("ref_ratio", "reference", "p_ref / p_old", _logarithmic(0.25, 4.0, 17), reads={"ref_logprob"},
         logarithmic=True),
    Axis("rollout_ratio", "sampling engine", "p_old / p_engine", _logarithmic(0.25, 4.0, 33),
         reads={"rollout_logprob"}, logarithmic=True),
    Axis("prompt_logprob", "how well the prompt is known", "lp of its tokens, nats",
         (-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, -0.1), reads={"prompt_logprob"}),
    Axis("influence", "influence", "on the right responses", tuple(i / 2 for i in range(-6, 7)), reads={"influence"}),
    Axis("divergence", "divergence", "of the group at the position", tuple(i / 4 for i in range(13)),
         reads={"divergence"}),
)  # fmt: skip
_BY_KEY = {axis.key: axis for axis in AXES}
_DESIGNED = frozenset({"temperature", "token_ids", "token_reward", *(name for axis in AXES for name in axis.reads)})


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The curves of a method.

    Args:
        base: [2, 2] pushes at the default facts, which hold along every axis that cannot matter.
        curves: axis -> [P, 2, 2] for axes that can matter: points, right and wrong response, push on lp and on entropy.
        noise: three standard errors of a push, for a method that chooses tokens at random; 0 for others.
    """

    base: Tensor
    curves: Mapping[str, Tensor]
    noise: float = 0.0

    def on(self, axis: Axis) -> Tensor:
        """The curve over an axis; if the method cannot depend on it, the plain axis's curve or a flat one."""
        if axis.key in self.curves:
            return self.curves[axis.key]
        return self.curves[axis.plain] if axis.plain else self.base.expand(len(axis.values), 2, 2)

    def varies(self, axis: Axis, channel: int) -> bool:
        """Whether the curve is not flat and not equal to the plain axis's curve."""
        own = self.on(axis)[..., channel]
        repeats = bool(axis.plain) and gap(own, self.on(_BY_KEY[axis.plain])[..., channel]) < EQUAL
        return gap(own, own.nanmean(0)) >= EQUAL + self.noise and not repeats


@functools.lru_cache(maxsize=512)
def fingerprint(objective: Any) -> Fingerprint:
    """The fingerprint of an objective over every axis that can matter to it; cached for equal objectives.

    Args:
        objective: anything with `needs`, `prepare` and `loss` (and `observe`, with scope "batch").
    """
    axes = [axis for axis in axes_of(objective) if axis.matters(objective)]
    curves = {axis.key: pushes(objective, [axis.facts(value) for value in axis.values]) for axis in axes}
    base, noise = pushes(objective, [Facts()])[0], 0.0
    if getattr(objective, "draws", False):
        single = torch.stack([pushes(objective, [Facts()], seeds=[seed])[0] for seed in range(DRAWS)])
        noise = 3 * float(single.std(0).max()) / DRAWS**0.5
    return Fingerprint(base, curves, noise)


def axes_of(*objectives: Any) -> list[Axis]:
    """The axes of `AXES`, and one for each other floating-point input [N, T] that an objective reads."""
    return [*AXES, *_further(frozenset().union(*(objective.needs for objective in objectives)))]


def gap(one: Tensor, other: Tensor) -> float:
    """The largest difference; NaN, for an impossible case, counts as no difference."""
    return float(torch.nan_to_num(one - other).abs().max())


@functools.lru_cache(maxsize=8192)
def distance(one: Any, other: Any) -> tuple[float, str]:
    """(largest mean difference of two fingerprints over an axis, title of that axis); 0 only if they are equal."""
    a, b = fingerprint(one), fingerprint(other)
    differences = [((a.on(axis) - b.on(axis)).abs().nanmean((0, 1)).max(), axis.title) for axis in axes_of(one, other)]
    far, title = max(differences, key=lambda pair: round(float(pair[0]), 9))  # of equal ones the first
    return float(far), title


def _further(needs: frozenset[str]) -> Iterator[Axis]:
    """An axis for each needed input [N, T] that is not designed, from its lowest to its highest value in `example`."""
    inputs = example()
    known, mask = {**inputs.rollouts, **inputs.policy}, inputs.rollouts["mask"]
    for name in sorted(needs & FACTS.keys() - _DESIGNED):
        if name in known and known[name].shape == mask.shape and known[name].is_floating_point():
            numbers = known[name][mask]
            values = torch.linspace(float(numbers.min()), float(numbers.max()), 13, dtype=torch.float64).tolist()
            title = name.replace("_", " ")
            yield Axis(name, title, "at the token", tuple(values), reads={name})

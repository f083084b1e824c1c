"""Signals and declarations: `walk` finds every part, and what fields of parts refuse, each in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import tokenpo
from tokenpo.base.errors import TokenPOError
from tokenpo.core.parts import AdaptiveTemperature, EntropyBonus, SignalWeight, SoftOverlong, TokenRatio
from tokenpo.core.parts.continuations import Continuations, EveryTokens
from tokenpo.core.parts.correction import Criterion, Mean, Rejection, RolloutCorrection
from tokenpo.core.parts.part import Part, walk
from tokenpo.core.parts.selection import CurrentEntropyScore, OldEntropyScore
from tokenpo.core.parts.surrogate import Clip, DetachedClip, FixedBounds
from tokenpo.core.parts.weights import Affine, Sigmoid


@dataclass(frozen=True)
class Leaf(Part):
    n: int


@dataclass(frozen=True)
class Plain:
    inner: Leaf


@dataclass(frozen=True)
class Branch(Part):
    one: Leaf
    many: tuple[Leaf, ...]
    plain: Plain
    number: float = 1.0
    kind: type = Plain


def test_walk_finds_every_part_outermost_first() -> None:
    """Through tuples and through dataclasses that are no parts themselves; never into classes."""
    branch = Branch(Leaf(1), (Leaf(2), Leaf(3)), Plain(Leaf(4)))
    assert list(walk(branch)) == [branch, Leaf(1), Leaf(2), Leaf(3), Leaf(4)]
    assert list(walk((branch, Leaf(5))))[-1] == Leaf(5)
    assert list(walk("text")) == []


def test_walk_inner_first_gives_a_part_after_those_it_holds() -> None:
    """Siblings keep their order: a signal of the surrogate comes before those of the weights."""
    branch = Branch(Leaf(1), (Leaf(2), Leaf(3)), Plain(Leaf(4)))
    assert list(walk((branch, Leaf(5)), inner_first=True)) == [Leaf(1), Leaf(2), Leaf(3), Leaf(4), branch, Leaf(5)]


@pytest.mark.parametrize(("released", "expected"), [(False, [1, -1 / 3, 0, -1]), (True, [1, 1 / 3, 0, 1])])
def test_entropy_scores_by_hand(released: bool, expected: list[float]) -> None:
    """log H = 2, -1, 0 | -3, pivot 0 (tests/core/ops/test_ranked.py), of the old policy or of the current one.

    Each of the two policies' entropies is the other's reversed order, so that taking the wrong one shows.
    """
    mask = torch.tensor([[True, True, True], [True, False, False]])
    entropy = torch.tensor([[2.0, -1.0, 0.0], [-3.0, 9.0, 9.0]], dtype=torch.float64).exp()
    other = torch.tensor([[-3.0, 0.0, -1.0], [2.0, 9.0, 9.0]], dtype=torch.float64).exp()
    zeros = torch.zeros(2, 3, dtype=torch.float64)

    def batch(old: torch.Tensor, current: torch.Tensor) -> tokenpo.Batch:
        facts = tokenpo.Rollouts(mask, torch.zeros(2), torch.zeros(2, dtype=torch.long), zeros, old_entropy=old)
        return tokenpo.Batch(facts, tokenpo.Credit(zeros), tokenpo.Policy(zeros, entropy=current))

    seen = OldEntropyScore(0.6, released)(batch(entropy, other).rollouts)
    assert seen[mask].tolist() == pytest.approx(expected, rel=1e-14, abs=1e-15)
    seen = CurrentEntropyScore(0.6, released)(batch(other, entropy), lambda: None, None)
    assert seen[mask].tolist() == pytest.approx(expected, rel=1e-14, abs=1e-15)


BOUNDS = FixedBounds(0.2, 0.2)
REFUSED: list[tuple[Callable[[], object], str]] = [
    *[(lambda a=a: Affine(a), f"Affine: a is {a}, expected a number in [0, 1]") for a in (-0.1, 1.1, math.nan)],
    (lambda: Sigmoid(2.0, 9.0, 0.2, -0.1, 1.0), "Sigmoid: lower is -0.1, expected a finite number >= 0"),
    (lambda: Sigmoid(2.0, 9.0, 0.2, math.nan, 1.0), "Sigmoid: lower is nan, expected a finite number >= 0"),
    (lambda: Sigmoid(2.0, 9.0, 0.2, 1.0, math.inf), "Sigmoid: upper is inf, expected a finite number >= 0"),
    (lambda: Sigmoid(2.0, 9.0, 0.2, 1.5, 1.0),
     "Sigmoid: upper is 1.0, expected a finite number >= 1.5, the smallest weight"),
    *[
        (lambda low=low: FixedBounds(low, 0.2), f"FixedBounds: low is {low}, expected a number in [0, 1]")
        for low in (-0.1, 1.1, math.nan)
    ],
    *[
        (lambda high=high: FixedBounds(0.2, high), f"FixedBounds: high is {high}, expected a number >= 0")
        for high in (-0.1, math.nan)
    ],
    *[
        (lambda dual=dual: Clip(BOUNDS, dual=dual), f"Clip: dual is {dual}, expected a number > 1, or none")
        for dual in (1.0, -2.0, math.nan)
    ],
    *[
        (lambda tau=tau: AdaptiveTemperature(tau), f"AdaptiveTemperature: tau is {tau}, expected a number in [0, 1)")
        for tau in (-0.01, 1.0, math.nan)
    ],
    (lambda: SoftOverlong(0, 0), "SoftOverlong: length is 0, expected a whole number >= 1"),
    (lambda: SoftOverlong(10, 0), "SoftOverlong: cache is 0, expected a whole number >= 1"),
    (lambda: SoftOverlong(10, 11), "SoftOverlong: cache is 11, expected a whole number in 1..10, the length"),
    (lambda: Continuations(EveryTokens(1), 0), "Continuations: count is 0, expected a whole number >= 1"),
    (lambda: Continuations(EveryTokens(1), 1, lean=-1.0), "Continuations: lean is -1.0, expected a finite number >= 0"),
    (lambda: RolloutCorrection(cap=0.9), "RolloutCorrection: cap is 0.9, expected a number >= 1"),
    (lambda: RolloutCorrection(cap=math.nan), "RolloutCorrection: cap is nan, expected a number >= 1"),
    *[
        (lambda x=x: RolloutCorrection(floor=x), f"RolloutCorrection: floor is {x}, expected a number in [0, 1]")
        for x in (1.1, -0.1, math.inf)
    ],
    (lambda: RolloutCorrection(geometric=True),
     "RolloutCorrection: a geometric mean is that of a response: set sequence=True with it"),
    (lambda: Criterion(Mean(), 2.0, 1.0), "Criterion: high is 1.0, expected a number >= 2.0, the lower bound"),
    (lambda: Criterion(Mean(), -1.0), "Criterion: low is -1.0, expected a number >= 0"),
    (lambda: Rejection(()), "Rejection: criteria is (), expected a tuple of Criterion values"),
    (lambda: Rejection(Criterion()), f"Rejection: criteria is {Criterion()}, expected a tuple of Criterion values"),
    (lambda: Rejection((Criterion(),), current=True, leaves=True),
     "Rejection: denominators are counted before the policy moves: leaves=True goes with current=False"),
    # a part holds parts of their own kind
    (lambda: Clip(0.2), "Clip: bounds is 0.2, expected a value of type Bounds"),
    (lambda: Clip(FixedBounds), f"Clip: bounds is {FixedBounds}, expected a value of type Bounds"),
    (lambda: DetachedClip(BOUNDS, TokenRatio(), 0.5),
     "DetachedClip: region is 0.5, expected a value of type Region, or none"),
    (lambda: SignalWeight("entropy"),
     "SignalWeight: signal is 'entropy', expected a value of type Signal or BatchSignal or MemorySignal"),
    (lambda: EntropyBonus("low"),
     "EntropyBonus: coef is 'low', expected a finite number, or a value of type MemorySignal"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_field_outside_its_range_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TokenPOError) as caught:
        make()
    assert str(caught.value) == message

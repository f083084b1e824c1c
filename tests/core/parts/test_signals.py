"""Signals: values that key their tensors, and `walk`, which finds every part of an objective."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import tokenpo
from tokenpo.core.parts import CurrentEntropyScore, OldEntropyScore, Part, walk


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
    """log H = 2, -1, 0 | -3, pivot 0 (tests/core/ops/test_entropy_score.py), of the old policy or of the current one.

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

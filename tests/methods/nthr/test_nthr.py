"""NTHR by hand, and what is special about it."""

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import Sample, by_hand, moves, outcome
from tokenpo.methods.nthr import SparedTokens


def _three(influence: list[list[float]]) -> Sample:
    """One right and two wrong responses at ratio 1. Mean reward 1/3, std sqrt((4/9 + 1/9 + 1/9) / 2) = sqrt(1/3): the
    advantages are 2 a, -a, -a with a = 1/3 / (sqrt(1/3) + 1e-6)."""
    ones = [[1.0] * len(row) for row in influence]
    return by_hand(ones, [1, 0, 0], [4, 4, 4], influence=influence)


A = 1 / 3 / (np.sqrt(1 / 3) + 1e-6)


def _weights(sample: Sample, **options) -> list[list[float]]:
    weight = outcome("nthr", sample, kl=0, **options).terms["weight"]
    return [row[kept].tolist() for row, kept in zip(weight, sample.mask, strict=True)]


def test_by_hand() -> None:
    """The right response's mean influence is (3 + 1) / 2 = 2 = tau. Above it: 2.5, not 2 itself. One of three is right:
    eta = 2 |1/2 - 1/3| = 1/3. At ratio 1 the gradient is -w A / (|o| · 3)."""
    sample = _three([[3, 1], [2.5, 1, 2], [-5]])
    expected = -A / 3 * np.array([[2 / 2, 2 / 2, 0], [-1 / 9, -1 / 3, -1 / 3], [-1, 0, 0]])
    got = moves("nthr", sample, None, expected, kl=0)
    assert got.value == pytest.approx(-A / 3 * (2 - (1 / 3 + 2) / 3 - 1), rel=1e-12)


def test_the_weakest_right_response_sets_the_threshold() -> None:
    """Means 4 / 4 = 1 and 3 / 1 = 3: tau = 1, of a mean over tokens. Two of four are right, 2 |1/2 - 1/2| = 0; the
    other group, whose least mean is -1, selects its wrong token by itself, with 2 |1/2 - 2/3| = 1/3."""
    influence = [[4, 0, 0, 0], [3], [1, 1.5], [0.5], [-1], [9], [-0.5]]
    ones = [[1.0] * len(row) for row in influence]
    sample = by_hand(ones, [1, 1, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1], influence=influence)
    weights = _weights(sample)
    assert weights[:6] == [[1] * 4, [1], [1, 0], [1], [1], [1]]
    assert weights[6] == pytest.approx([1 / 3], rel=1e-12)


def test_the_threshold_does_not_depend_on_rounding() -> None:
    """Influences 1e8, 1, -1e8 of the right response have the mean 1/3, which a float32 sum would lose; 0.2 is below."""
    rollouts = tokenpo.Rollouts(
        torch.ones(2, 3, dtype=torch.bool), torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.zeros(2, 3),
        influence=torch.tensor([[1e8, 1.0, -1e8], [0.2, 0.5, 0.0]]),
    )  # fmt: skip
    assert SparedTokens(beta=1.0, eta=0.5)(rollouts).tolist() == [[1, 1, 1], [1, 0.5, 1]]

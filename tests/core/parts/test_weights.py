"""Weights on a token's surrogate, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from tokenpo.core.parts import NormalisedWeight, ProbabilityWeight
from tokenpo.core.parts.weights import Affine, CurrentMean, Sigmoid


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_sigmoid_by_hand() -> None:
    """2 sigmoid(9 (p - 1/4)): 1 at p = 1/4; 2 sigmoid(0.9) = 1.4219 is cut at 1.4; 2 sigmoid(-2.25) = 0.19 at 1/2."""
    curve = Sigmoid(2.0, 9.0, 0.25, 0.5, 1.4)
    p = torch.tensor([0.25, 0.35, 0.3, 0.0], dtype=torch.float64)
    assert 2 * _sigmoid(0.9) > 1.4
    assert curve(p).tolist() == pytest.approx([1, 1.4, 2 * _sigmoid(0.45), 0.5], rel=1e-14)


def test_affine_by_hand() -> None:
    """0.2 p + 0.8 at p = 0, 1/2, 1."""
    p = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    assert Affine(0.2)(p).tolist() == pytest.approx([0.8, 0.9, 1.0], rel=1e-14)
    assert Affine(0.0)(p).tolist() == [1, 1, 1]
    assert Affine(1.0)(p).tolist() == [0, 0.5, 1]


def test_probability_of_the_current_or_the_old_policy(batch) -> None:
    """Old probability 0.2, ratios 1 and 3: current 0.2 and 0.6. Neither lets a gradient through."""
    step = batch([[1.0, 3.0]], [1.0], old=0.2)
    current, old = ProbabilityWeight(Affine(1.0)), ProbabilityWeight(Affine(1.0), old=True)
    assert current(step, None).tolist()[0] == pytest.approx([0.2, 0.6], rel=1e-14)
    assert old(step, None).tolist()[0] == pytest.approx([0.2, 0.2], rel=1e-14)
    assert not current.of_batch(step).requires_grad


def test_normalised_weight_by_hand(batch) -> None:
    """0.2, 0.6, 0.4 over their mean 0.4: 1/2, 3/2, 1; the mean weight over the tokens is 1."""
    step = batch([[1.0, 3.0], [2.0]], [1.0, 1.0], old=0.2)
    weight = NormalisedWeight.of(ProbabilityWeight(Affine(1.0)))
    assert isinstance(weight.mean, CurrentMean)
    step = step.with_signal(weight.mean, weight.mean(step, lambda: None, None))
    assert weight(step, None)[step.mask].tolist() == pytest.approx([0.5, 1.5, 1.0], rel=1e-14)

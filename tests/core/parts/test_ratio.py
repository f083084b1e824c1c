"""Ratios as choices of an objective: each is its op on lp - lp_old, padding left out."""

from __future__ import annotations

import pytest
import torch

from tokenpo.core.parts import WeightedRatio
from tokenpo.core.parts.ratio import ArithmeticSequence, GeometricSequence, GeometricToken, ProductSequence, TokenRatio
from tokenpo.core.parts.weights import Affine, NormalisedWeight, ProbabilityWeight

RATIOS = [[2.0, 0.5, 8.0], [3.0]]  # product 8, cube root 2; mean 10.5 / 3 = 3.5


def _gradient(ratio, step) -> list[float]:
    """d/dlp of the sum of the ratio over the tokens, each token of row 0 counted once."""
    (gradient,) = torch.autograd.grad(torch.where(step.mask, ratio, 0).sum(), step.policy.logprob)
    return gradient[step.mask].tolist()


@pytest.mark.parametrize(
    ("stage", "value", "slope"),
    [
        (TokenRatio(), [2, 0.5, 8, 3], [2, 0.5, 8, 3]),  # d r_t / d lp_t = r_t
        (GeometricSequence(), [2, 2, 2, 3], [2, 2, 2, 3]),  # three tokens each show s: 3 · s/3
        (GeometricToken(), [2, 2, 2, 3], [2, 2, 2, 3]),  # each its own: s
        (ArithmeticSequence(), [3.5, 3.5, 3.5, 3], [2, 0.5, 8, 3]),  # 3 · r_t/3
        (ProductSequence(), [8, 8, 8, 3], [24, 24, 24, 3]),  # three tokens each show W: 3 · W
    ],
)
def test_by_hand(batch, stage, value: list[float], slope: list[float]) -> None:
    step = batch(RATIOS, [1.0, 1.0])
    seen = stage(step)
    assert seen[step.mask].tolist() == pytest.approx(value, rel=1e-14)
    assert _gradient(seen, step) == pytest.approx(slope, rel=1e-14)


def test_ratios_are_bounded(batch) -> None:
    """e^±30 is held at e^±20, without gradient."""
    step = batch([[torch.e**30, torch.e**-30]], [1.0], old=1e-20)
    seen = TokenRatio()(step)
    assert seen.log()[0].tolist() == pytest.approx([20, -20], rel=1e-14)
    assert _gradient(seen, step) == [0, 0]


def test_weighted_ratio(batch) -> None:
    """p = 0.1 r: 0.2, 0.05, 0.8 | 0.3; w = p / 2 + 1 / 2 is stopped, so the gradient is w r like the value."""
    step = batch(RATIOS, [1.0, 1.0], old=0.1)
    seen = WeightedRatio(TokenRatio(), ProbabilityWeight(Affine(0.5)))(step)
    expected = [0.6 * 2, 0.525 * 0.5, 0.9 * 8, 0.65 * 3]
    assert seen[step.mask].tolist() == pytest.approx(expected, rel=1e-14)
    assert _gradient(seen, step) == pytest.approx(expected, rel=1e-14)


def test_weighted_ratio_with_a_normalised_weight(batch) -> None:
    """The same weights over their mean (0.6 + 0.525 + 0.9 + 0.65) / 4 = 0.66875."""
    step = batch(RATIOS, [1.0, 1.0], old=0.1)
    weight = NormalisedWeight.of(ProbabilityWeight(Affine(0.5)))
    step = step.with_signal(weight.mean, weight.mean(step, lambda: None, None))
    seen = WeightedRatio(TokenRatio(), weight)(step)
    expected = [x / 0.66875 for x in (0.6 * 2, 0.525 * 0.5, 0.9 * 8, 0.65 * 3)]
    assert seen[step.mask].tolist() == pytest.approx(expected, rel=1e-14)

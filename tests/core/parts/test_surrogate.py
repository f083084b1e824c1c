"""Ratios and surrogates by hand: value, gradient, and which tokens the trust region cuts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from tokenpo.core.parts import HighInResponse, Unclipped, WeightedRatio
from tokenpo.core.parts.ratio import ArithmeticSequence, GeometricSequence, GeometricToken, ProductSequence, TokenRatio
from tokenpo.core.parts.surrogate import Clip, DetachedClip, FixedBounds, LogLikelihood, Region, SelectedBounds
from tokenpo.core.parts.weights import Affine, NormalisedWeight, ProbabilityWeight

ROWS = [[2.0, 0.5, 8.0], [3.0]]  # product 8, cube root 2; mean 10.5 / 3 = 3.5


def _slope(ratio, step) -> list[float]:
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
    step = batch(ROWS, [1.0, 1.0])
    seen = stage(step)
    assert seen[step.mask].tolist() == pytest.approx(value, rel=1e-14)
    assert _slope(seen, step) == pytest.approx(slope, rel=1e-14)


def test_ratios_are_bounded(batch) -> None:
    """e^±30 is held at e^±20, without gradient."""
    step = batch([[torch.e**30, torch.e**-30]], [1.0], old=1e-20)
    seen = TokenRatio()(step)
    assert seen.log()[0].tolist() == pytest.approx([20, -20], rel=1e-14)
    assert _slope(seen, step) == [0, 0]


def test_weighted_ratio(batch) -> None:
    """p = 0.1 r: 0.2, 0.05, 0.8 | 0.3; w = p / 2 + 1 / 2 is stopped, so the gradient is w r like the value."""
    step = batch(ROWS, [1.0, 1.0], old=0.1)
    seen = WeightedRatio(TokenRatio(), ProbabilityWeight(Affine(0.5)))(step)
    expected = [0.6 * 2, 0.525 * 0.5, 0.9 * 8, 0.65 * 3]
    assert seen[step.mask].tolist() == pytest.approx(expected, rel=1e-14)
    assert _slope(seen, step) == pytest.approx(expected, rel=1e-14)


def test_weighted_ratio_with_a_normalised_weight(batch) -> None:
    """The same weights over their mean (0.6 + 0.525 + 0.9 + 0.65) / 4 = 0.66875."""
    step = batch(ROWS, [1.0, 1.0], old=0.1)
    weight = NormalisedWeight.of(ProbabilityWeight(Affine(0.5)))
    step = step.with_signal(weight.mean, weight.mean(step, lambda: None, None))
    seen = WeightedRatio(TokenRatio(), weight)(step)
    expected = [x / 0.66875 for x in (0.6 * 2, 0.525 * 0.5, 0.9 * 8, 0.65 * 3)]
    assert seen[step.mask].tolist() == pytest.approx(expected, rel=1e-14)


RATIOS = [[0.5, 1.0, 1.5], [0.5, 1.0, 1.5, 5.0]]
A = [2.0, -3.0]


def _gradient(trust, batch) -> list[float]:
    kept = torch.where(batch.mask, trust.value, 0).sum()
    (gradient,) = torch.autograd.grad(kept, batch.policy.logprob)
    return gradient.flatten().tolist()


def test_clip_by_hand(batch) -> None:
    """Bounds 0.75 and 1.25.

    A = 2: 0.5 → 1, 1 → 2, 1.5 is cut at 1.25 → 2.5. A = -3: 0.5 is cut at 0.75 → -2.25, -3, -4.5, 5 → -15.
    The gradient to lp is r A where not cut.
    """
    step = batch(RATIOS, A)
    trust = Clip(FixedBounds(0.25, 0.25))(step)
    value = torch.where(step.mask, trust.value, 0).detach()
    assert value.flatten().tolist() == pytest.approx([1, 2, 2.5, 0, -2.25, -3, -4.5, -15], rel=1e-14)
    assert trust.clipped[step.mask].tolist() == [False, False, True, True, False, False, False]
    gradient = _gradient(trust, step)
    assert gradient == pytest.approx([1, 2, 0, 0, 0, -3, -4.5, -15], rel=1e-14)
    assert (trust.lower, trust.upper) == (0.75, 1.25)
    assert trust.ratio[step.mask].tolist() == pytest.approx([0.5, 1, 1.5, 0.5, 1, 1.5, 5], rel=1e-14)
    assert trust.ratio.requires_grad
    assert trust.clipped.dtype == torch.bool


def test_dual_clip_by_hand(batch) -> None:
    """With dual = 3 the last token of the second row is cut at 3: -9."""
    step = batch(RATIOS, A)
    trust = Clip(FixedBounds(0.25, 0.25), dual=3.0)(step)
    assert trust.value[1].tolist() == pytest.approx([-2.25, -3, -4.5, -9], rel=1e-14)
    assert trust.clipped[1].tolist() == [True, False, False, True]
    assert _gradient(trust, step)[4:] == pytest.approx([0, -3, -4.5, 0], rel=1e-14)


def test_unclipped(batch) -> None:
    step = batch(RATIOS, A)
    trust = Unclipped()(step)
    value = torch.where(step.mask, trust.value, 0).flatten().tolist()
    assert value == pytest.approx([1, 2, 3, 0, -1.5, -3, -4.5, -15], rel=1e-14)
    assert _gradient(trust, step) == pytest.approx(value, rel=1e-14)
    assert trust.clipped.dtype == torch.bool
    assert trust.clipped.shape == step.mask.shape
    assert not trust.clipped.any()
    assert (trust.lower, trust.upper) == (0.0, math.inf)


@dataclass(frozen=True)
class NotFirst(Region):
    """Lets every token in but the first of a response."""

    def __call__(self, batch):
        return (torch.arange(batch.mask.shape[1]) > 0).expand(batch.mask.shape)


def test_detached_clip_by_hand(batch) -> None:
    """Weights clip(r, 0.75, 1.25) = 0.75, 1, 1.25 and 0.75, 1, 1.25, 1.25; gradient weight · A, value that times lp."""
    step = batch(RATIOS, A)
    trust = DetachedClip(FixedBounds(0.25, 0.25))(step)
    expected = [1.5, 2, 2.5, 0, -2.25, -3, -3.75, -3.75]
    assert _gradient(trust, step) == pytest.approx(expected, rel=1e-14)
    lp = [math.log(0.25 * r) for r in (*RATIOS[0], 1.0, *RATIOS[1])]
    value = torch.where(step.mask, trust.value, 0).flatten().tolist()
    assert value == pytest.approx([c * x for c, x in zip(expected, lp, strict=True)], rel=1e-14)
    assert not trust.clipped.any()


def test_a_region_cuts_tokens_off(batch) -> None:
    step = batch(RATIOS, [2.0, 0.0])
    trust = DetachedClip(FixedBounds(0.25, 0.25), region=NotFirst())(step)
    assert _gradient(trust, step) == pytest.approx([0, 2, 2.5, 0, 0, 0, 0, 0], rel=1e-14)
    assert trust.clipped.tolist() == [[True, False, False, False], [False] * 4]  # without advantage nothing is cut


def test_log_likelihood_by_hand(batch) -> None:
    """The gradient is A at every token; the ratio is only shown."""
    step = batch(RATIOS, A)
    trust = LogLikelihood()(step)
    assert _gradient(trust, step) == [2, 2, 2, 0, -3, -3, -3, -3]
    assert trust.ratio[step.mask].tolist() == pytest.approx([0.5, 1, 1.5, 0.5, 1, 1.5, 5], rel=1e-14)
    assert not trust.ratio.requires_grad
    assert (trust.lower, trust.upper) == (0.0, math.inf)


@pytest.mark.parametrize("most", [0.5, math.inf])
def test_selected_bounds(most: float, batch) -> None:
    """Also where the selected ones have no bound above."""
    step = batch(RATIOS, A, old_entropy=[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
    lower, upper = SelectedBounds(HighInResponse(0.5), FixedBounds(0.5, most), FixedBounds(0.25, 0.25))(step)
    high = [[False, False, True, False], [False, False, False, True]]  # above the second of three, the third of four
    assert lower.tolist() == [[0.5 if h else 0.75 for h in row] for row in high]
    assert upper.tolist() == [[1 + most if h else 1.25 for h in row] for row in high]

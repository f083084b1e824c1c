"""Surrogates by hand: value, gradient, and which tokens the trust region cuts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from tokenpo.core.parts import HighInResponse, Unclipped
from tokenpo.core.parts.surrogate import Clip, DetachedClip, FixedBounds, LogLikelihood, Region, SelectedBounds

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

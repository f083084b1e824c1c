"""HAPO's entropy score by hand, on entropies that are powers of e."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tokenpo.base.errors import TokenPOError
from tokenpo.core.ops import entropy_score

# log H = 2, -1, 0 | -3, and padding that must not count. Sorted: -3, -1, 0, 2.
LOG = torch.tensor([[2.0, -1.0, 0.0], [-3.0, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, False, False]])


def _numbers(scale: tuple[Tensor, ...]) -> list[float]:
    return [float(x) for x in scale]


def test_measure_by_hand() -> None:
    """Quantile 0.6: round(0.6 · 3) = 2, pivot 0. Raw 2, -1, 0, -3: spread sqrt((4 + 1 + 0 + 9) / 4) = sqrt(3.5).

    top 2 / sqrt(3.5), bottom -3 / sqrt(3.5).
    """
    spread = 3.5**0.5
    scale = _numbers(entropy_score.measure(LOG.exp(), MASK, 0.6))
    assert scale == pytest.approx([0, spread, 2 / spread, -3 / spread], rel=1e-14, abs=1e-15)


def test_score_by_hand() -> None:
    """Pivot 0: above divided by 2, below by 3, so the spread drops out: 1, -1/3, 0, -1."""
    scale = entropy_score.measure(LOG.exp(), MASK, 0.6)
    seen = entropy_score.score(LOG.exp(), scale)[MASK]
    assert seen.tolist() == pytest.approx([1, -1 / 3, 0, -1], rel=1e-14, abs=1e-15)


def test_zero_entropy_is_floored() -> None:
    """0 and 1e-12 both count as 1e-8."""
    entropy = torch.tensor([[0.0, 1e-12, 1e-8, 1.0]], dtype=torch.float64)
    mask = torch.ones_like(entropy, dtype=torch.bool)
    scale = entropy_score.measure(entropy, mask, 0.0)
    assert float(scale[0]) == pytest.approx(math.log(1e-8), rel=1e-14)
    assert entropy_score.score(entropy, scale).tolist() == [[0, 0, 0, 1]]


def test_a_scale_without_extent_scores_zero() -> None:
    """All entropies equal: spread, top and bottom are 0, and so is every score, of both signs."""
    entropy = torch.full((2, 3), 0.3, dtype=torch.float64)
    scale = entropy_score.measure(entropy, torch.ones(2, 3, dtype=torch.bool), 0.8)
    assert _numbers(scale)[1:] == [0, 0, 0]
    assert not entropy_score.score(entropy, scale).any()
    assert not entropy_score.score(entropy, scale, negative_is_positive=True).any()


@pytest.mark.parametrize(("log_entropy", "quantile"), [(7.0, 1.0), (-7.0, 0.0)])
@pytest.mark.parametrize("released", [False, True])
def test_the_side_without_extent_scores_zero(log_entropy: float, quantile: float, released: bool) -> None:
    """The next batch meets an entropy above every one, or below every one, of the batch that made the scale."""
    scale = entropy_score.measure(LOG.exp(), MASK, quantile)
    outside = torch.tensor([log_entropy], dtype=torch.float64).exp()
    assert float(entropy_score.score(outside, scale, negative_is_positive=released)) == 0


def test_measure_of_nothing_is_refused() -> None:
    with pytest.raises(TokenPOError, match="at least one response token, the mask is empty"):
        entropy_score.measure(LOG.exp(), torch.zeros_like(MASK), 0.8)

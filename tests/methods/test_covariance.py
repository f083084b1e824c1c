"""Which tokens Clip-Cov and KL-Cov select, by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import tokenpo
from tokenpo.methods.cov import RandomCovariant, TopCovariant, covariance

MASK = torch.tensor([[True, True], [True, False]])
# Over the three tokens A = 1, -1, 3 (mean 1), lp = -1, -2, -6 (mean -3): cov = 0, -2, -6, and 0 - 1 times 0 + 3 = -3
# on the padding, inside the band (-6, 0).
ADVANTAGE = torch.tensor([[1.0, -1.0], [3.0, 0.0]], dtype=torch.float64)
LOGPROB = torch.tensor([[-1.0, -2.0], [-6.0, -1.0]], dtype=torch.float64)


def _batch(advantage: torch.Tensor = ADVANTAGE, logprob: torch.Tensor = LOGPROB, mask: torch.Tensor = MASK):
    n = len(mask)
    rollouts = tokenpo.Rollouts(mask, torch.zeros(n), torch.zeros(n, dtype=torch.long), logprob)
    return tokenpo.Batch(rollouts, tokenpo.Credit(advantage), tokenpo.Policy(logprob))


def _trust(clipped: torch.Tensor):
    """A look at a step whose clipped tokens are these."""
    return lambda: dataclasses.replace(tokenpo.method("kl_cov").surrogate(_batch()), clipped=clipped)


NONE = torch.zeros_like(MASK)


@pytest.mark.parametrize(
    ("low", "high", "chosen"),
    [
        (-6, 0, [[0, 1], [0, 0]]),  # both ends are open, and padding is never chosen
        (-6.1, 0, [[0, 1], [1, 0]]),
        (-6, 0.1, [[1, 1], [0, 0]]),
        (-7, 1, [[1, 1], [1, 0]]),
        (0, 5, [[0, 0], [0, 0]]),
    ],
)
def test_the_band_of_clip_cov(low: float, high: float, chosen: list) -> None:
    """All that are eligible, since the fraction of 1 allows all three."""
    assert RandomCovariant(1.0, low, high)(_batch(), _trust(NONE), None).tolist() == chosen


def test_clipped_tokens_are_not_drawn() -> None:
    clipped = torch.tensor([[False, True], [False, False]])
    assert RandomCovariant(1.0, -7, 1)(_batch(), _trust(clipped), None).tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize(("fraction", "count"), [(0.01, 1), (0.1, 1), (0.5, 1), (0.67, 2), (1.0, 3)])
def test_how_many_are_selected(fraction: float, count: int) -> None:
    """max(1, int(fraction · 3)), of both kinds."""
    assert RandomCovariant(fraction, -7, 1)(_batch(), _trust(NONE), None).sum() == count
    assert TopCovariant(fraction)(_batch(), _trust(NONE), None).sum() == count


def test_draws_without_a_generator_are_those_of_seed_zero() -> None:
    """As documented at `observe`; other seeds draw other tokens."""
    g = torch.Generator().manual_seed(5)
    mask = torch.ones(8, 64, dtype=torch.bool)
    batch = _batch(
        torch.randn(8, 64, generator=g, dtype=torch.float64), -torch.rand(8, 64, generator=g, dtype=torch.float64), mask
    )
    objective = tokenpo.method("clip_cov", fraction=0.1, cov_low=-100.0, cov_high=100.0)
    (drop,) = objective.weights

    def drawn(generator: torch.Generator | None) -> torch.Tensor:
        return objective.observe(batch, generator).signal(drop.selection)

    assert torch.equal(drawn(None), drawn(torch.Generator().manual_seed(0)))
    assert not torch.equal(drawn(None), drawn(torch.Generator().manual_seed(1)))
    assert drawn(None).sum() == int(0.1 * 512)


def test_the_covariance_by_hand() -> None:
    """Over the tokens A = 1, -1, 3 (mean 1) and lp = -1, -2, -6 (mean -3).

    0 · 2 = 0;  -2 · 1 = -2;  2 · -3 = -6. The fourth place holds zeros and counts in neither mean.
    """
    advantage = torch.tensor([[1.0, -1.0], [3.0, 0.0]], dtype=torch.float64, requires_grad=True)
    logprob = torch.tensor([[-1.0, -2.0], [-6.0, 0.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True], [True, False]])
    seen = covariance(advantage, logprob, 3)
    assert seen[mask].tolist() == [0, -2, -6]
    assert not seen.requires_grad
    assert advantage.tolist() == [[1, -1], [3, 0]]


def test_a_token_alone_covaries_with_nothing_and_none_is_no_division_by_zero() -> None:
    advantage, logprob = torch.tensor([[2.0, 0.0]]), torch.tensor([[-3.0, 0.0]])
    assert covariance(advantage, logprob, 1)[0, 0] == 0
    assert covariance(0 * advantage, 0 * logprob, 0).tolist() == [[0, 0]]

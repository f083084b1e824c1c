"""GRPO-S by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, moves, outcome, ragged

# Hbar = 3, 1 | 1, 1/3 by either mean (2 and 4.5 have the geometric mean 3; 1.5 and 4.5 the arithmetic one).
ARITHMETIC = [[1.5, 4.5], [1.0], [1.0], [1 / 3, 1 / 3]]
GEOMETRIC = [[2.0, 4.5], [1.0], [1.0], [1 / 3, 1 / 3]]


def test_by_hand() -> None:
    """Shares of the right: 3/4, 1/4 of n = 2; of the wrong, by 1/Hbar = 1, 3: 1/4, 3/4. Mean 0:

    r^ = 1.15, 1.05, -1.05, -1.15; std = sqrt(2 (1.15² + 1.05²) / 3). Row 0: w = (1 + 1.2) / 2 = 1.1 inside;
    row 3: w = (0.5 + 0.7) / 2 = 0.6 clipped to 0.8. Each token moves by A r_it / |o_i| / 4.
    """
    std = np.sqrt(2 * (1.15**2 + 1.05**2) / 3) + 1e-6
    sample = by_hand([[1, 1.2], [2.0], [1], [0.5, 0.7]], [1, 1, 0, 0], old_entropy=ARITHMETIC)
    expected = [[-1.15 / 8, -1.2 * 1.15 / 8], [0, 0], [1.05 / 4, 0], [0, 0]]
    moves("grpo_s", sample, -(1.1 * 1.15 + 1.28 * 1.05 - 1.05 - 0.8 * 1.15) / std / 4, np.array(expected) / std)


def test_geometric_by_hand() -> None:
    """Hbar over the set's geometric mean: sqrt 3, 1 / sqrt 3 right; 1 / Hbar likewise: 1 / sqrt 3, sqrt 3 wrong.

    r^ = ±(1 + 0.1 sqrt 3), ±(1 + 0.1 / sqrt 3), mean 0. Row 0: w = sqrt(1 · 1.21) = 1.1, a token moves by w A / 2 / 4.
    """
    far, near = 1 + 0.1 * np.sqrt(3), 1 + 0.1 / np.sqrt(3)
    std = np.sqrt(2 * (far**2 + near**2) / 3) + 1e-6
    sample = by_hand([[1, 1.21], [2.0], [1], [0.5, 0.5]], [1, 1, 0, 0], old_entropy=GEOMETRIC)
    expected = [[-1.1 * far / 8, -1.1 * far / 8], [0, 0], [near / 4, 0], [0, 0]]
    moves(
        "grpo_s",
        sample,
        -(1.1 * far + 1.28 * near - near - 0.8 * far) / std / 4,
        np.array(expected) / std,
        mean="geometric",
    )


@pytest.mark.parametrize("seed", range(2))
def test_without_entropy_it_is_grpo_on_outcomes_with_the_mean_ratio(seed: int) -> None:
    """b2 = 0: GRPO's advantage of ±1 rewards, and J = mean_i min(w A, clip(w) A) with w the mean of the ratios."""
    sample = ragged(seed)
    signs = sample.but(reward=np.where(sample.reward > 0, 1.0, -1.0))
    share = sample.mask / (sample.mask.any(1).sum() * np.maximum(sample.mask.sum(1), 1))[:, None]
    # at ratio 1 GRPO's gradient is -A · share
    A = -outcome("grpo", signs.on_policy()).gradient[:, :1] / np.where(share > 0, share, 1)[:, :1]
    r = np.exp(sample.logprob - sample.old_logprob)
    w = (r * sample.mask).sum(1, keepdims=True) / np.maximum(sample.mask.sum(1, keepdims=True), 1)
    inside = np.where(A > 0, w <= 1.28, w >= 0.8)
    got = outcome("grpo_s", sample, b2=0.0)
    np.testing.assert_allclose(got.gradient, -share * A * r * inside, rtol=1e-10, atol=1e-16)
    assert got.value == pytest.approx(-(share * np.minimum(w * A, np.clip(w, 0.8, 1.28) * A)).sum(), rel=1e-10)

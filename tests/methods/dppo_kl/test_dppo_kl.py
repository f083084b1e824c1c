"""DPPO with binary KL by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, moves, outcome


def _kl(q: float, p: float) -> float:
    return q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6). The sampler said 0.2 for every token.

    KL(0.2 | 0.3) = 0.026 is within 0.05 and KL(0.2 | 0.4) = 0.092 is not; KL(0.2 | 0.1) = 0.044 is and
    KL(0.2 | 0.05) = 0.14 is not: row 0 may not rise that far, row 1 may not fall that far, and both may go back.
    """
    assert _kl(0.2, 0.3) < _kl(0.2, 0.1) < 0.05 < _kl(0.2, 0.4) < _kl(0.2, 0.05)
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[1.5, 2, 0.25], [0.5, 0.25, 2]], [1, 0], p_old=0.2)
    sample = sample.but(rollout_logprob=sample.old_logprob, old_logprob=sample.old_logprob - 1)  # not the anchor
    total = 1.5 * np.log(0.3) + 0.25 * np.log(0.05) - 0.5 * np.log(0.1) - 2 * np.log(0.4)
    moves("dppo_kl", sample, -total, [[-1.5, 0, -0.25], [0.5, 0, 2]], unit=a / 6)


@pytest.mark.parametrize(("threshold", "inside"), [(0.0108, True), (0.0102, False)])
def test_a_certain_token_is_as_far_as_a_probability_of_1e_8_for_the_rest_allows(threshold: float, inside: bool) -> None:
    """From 1 − 1e-3 to 1 − 1e-12: KL = 1e-3 ln((1e-3 + 1e-8) / (1e-12 + 1e-8)) + 0.999 ln 0.999 = 0.0105.

    Nothing added it would be 0.0197, twice as much added 0.0098, half as much 0.0112.
    """
    q, p = 1 - 1e-3, -1e-12
    far = 1e-3 * np.log((1e-3 + 1e-8) / (1e-12 + 1e-8)) + q * np.log(q)
    assert far == pytest.approx(0.0105, abs=5e-5)
    sample = by_hand([[1.0], [1.0]], [1, 0])
    sample = sample.but(rollout_logprob=np.full((2, 1), np.log(q)), logprob=np.full((2, 1), p))
    got = outcome("dppo_kl", sample, threshold=threshold)
    # Row 0 rises further, row 1 means to fall: back to where it was.
    assert bool(got.gradient[0, 0]) is inside
    assert got.gradient[1, 0] != 0


@pytest.mark.parametrize(("rollout", "now", "row"), [(-1e-4, 1e-6, 0), (1e-6, -1e-3, 1)])
def test_a_log_probability_that_rounding_left_above_0_is_one_of_0(rollout: float, now: float, row: int) -> None:
    """Both are near: KL = 1e-4 ln(1e-4 / 1e-8) − 1e-4 = 8e-4, and 1e-3 the other way, within 0.05."""
    sample = by_hand([[1.0], [1.0]], [1, 0])
    sample = sample.but(rollout_logprob=np.full((2, 1), rollout), logprob=np.full((2, 1), now))
    got = outcome("dppo_kl", sample)
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    assert got.gradient[row, 0] == pytest.approx((-1, 1)[row] * np.exp(now - rollout) * a / 2, rel=1e-9)

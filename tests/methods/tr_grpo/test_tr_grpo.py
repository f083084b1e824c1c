"""TR-GRPO by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, moves, outcome

# w = clip(2 σ(9 (p - 1/4)), 1, 1.4): 1 at p = 1/4 (σ(0) = 1/2), 1.2 where σ = 0.6, i.e. 9 (p - 1/4) = log 1.5,
# 1.4 (from 1.81) at p = 1/2, 1 (from 0.41) at p = 0.1.
P = [[0.25, 0.25 + np.log(1.5) / 9], [0.5, 0.1]]


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6); p is the current probability; all ratios 1 but 1.1 at (0, 1).

    J = [(1 + 1.1 · 1.2) a / 2 - (1.4 + 1) a / 2] / 2.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[1, 1.1], [1, 1]], [1, 0])
    sample = sample.but(logprob=np.log(P), old_logprob=np.log(np.array(P) / [[1, 1.1], [1, 1]]))
    got = outcome("tr_grpo", sample)
    assert got.value == pytest.approx(-(1 + 1.32 - 1.4 - 1) * a / 4, rel=1e-10)
    np.testing.assert_allclose(got.gradient, np.array([[-1, -1.32], [1.4, 1]]) * a / 4, rtol=1e-12)


def test_mu_outside_the_sigmoid_by_hand() -> None:
    """w = clip(2 (σ(9 p) - 1/4), 1, 1.4). σ = 0.75 at p = log 3 / 9: 1; σ = 0.85 at log(17 / 3) / 9: 1.2; σ = 0.95 at
    log 19 / 9: 1.4; above that 1.4. All ratios 1, A = ±a."""
    p = np.array([[np.log(3), np.log(17 / 3)], [np.log(19), 4.0]]) / 9
    sample = by_hand([[1, 1], [1, 1]], [1, 0])
    sample = sample.but(logprob=np.log(p), old_logprob=np.log(p))
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    moves("tr_grpo", sample, None, [[-1, -1.2], [1.4, 1.4]], unit=a / 4, shape="outside")


@pytest.mark.filterwarnings("ignore")
def test_weight_inside_the_clip_kills_confident_correct_tokens() -> None:
    """At p = 1/2 and ratio 1 the weighted ratio 1.4 is beyond 1.2: a right token stops, a wrong one does not."""
    sample = by_hand([[1], [1]], [1, 0], p_old=0.5)
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    got = moves("tr_grpo", sample, None, [[0], [1.4 * a / 2]], weight_placement="ratio")
    assert got.value == pytest.approx(-(1.2 - 1.4) * a / 2, rel=1e-12)


def test_kl_inside_by_hand() -> None:
    """Equal rewards, p = 1/2, π_ref = π: u = w = 1.4, so k3 = 0.4 - log 1.4 and ∂k3/∂lp = 1 - 1.4."""
    moves(
        "tr_grpo",
        by_hand([[1]], [1], p_old=0.5),
        0.1 * (0.4 - np.log(1.4)),
        [[-0.1 * 0.4]],
        beta=0.1,
        kl_weighting="inside",
    )

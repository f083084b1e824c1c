"""prime-rl's default loss by hand, and what is special about it."""

import numpy as np

import tokenpo
from oracle_support import by_hand, moves, outcome, ragged


def test_by_hand() -> None:
    """p_roll = 1/4; ratios 1.6, 2 right: p rose by 0.15, 0.25 > 0.2, so the second is dropped; 0.1, 2 wrong: fell by
    0.225 > 0.2, dropped, and rose, kept. A = ±1/2. Each token pays 0.1 (log q)²."""
    roll = [[np.log(0.25)] * 2] * 2
    sample = by_hand([[1.6, 2.0], [0.1, 2.0]], [1, 0], rollout_logprob=roll)
    log = np.log([[1.6, 2.0], [0.1, 2.0]])
    pushed = np.array([[0.8, 0], [0, -1.0]])
    moves("prime_rl", sample, (-0.8 + 1.0 + 0.1 * (log**2).sum()) / 4, -(pushed - 0.2 * log) / 4, kl=0.1)


def test_without_its_penalty_it_has_the_gradient_of_dppo_on_dr_grpos_advantage() -> None:
    sample = ragged(0)
    ours = outcome("prime_rl", sample, kl=0.0, low=0.02, high=0.02)
    advantage = outcome("dr_grpo", sample, length=1.0).terms["advantage"]
    np.testing.assert_array_equal(ours.terms["advantage"], advantage)
    dppo = outcome("dppo_tv", sample, advantage=advantage, threshold=0.02, cap=1e9)
    np.testing.assert_allclose(ours.gradient, dppo.gradient, rtol=1e-12, atol=1e-17)


def test_rows_without_an_advantage_are_still_pulled_back() -> None:
    assert not tokenpo.method("prime_rl").follows_advantage
    assert tokenpo.method("prime_rl", kl=0.0).follows_advantage

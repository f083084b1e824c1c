"""Advantage Reweighting by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, close, moves, outcome, ragged, score


def test_by_hand() -> None:
    """p_old = 1/40: w = 0.2 / 40 + 0.8 = 0.805. Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6).

    1.1 and 1.5 (clipped to 1.24) for A > 0, 20 (stopped at 10) and 1 for A < 0; k3 to a reference at u = 0.5, which
    costs 0.1 (log 2 - 0.5) at (0, 0) and moves it by -0.1 · 0.5.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[1.1, 1.5], [20, 1]], [1, 0], p_old=1 / 40)
    reference = sample.logprob + np.array([[np.log(0.5), 0], [0, 0]])
    moves(
        "adv_reweight",
        sample.but(ref_logprob=reference),
        -((1.1 + 1.24 - 10 - 1) * 0.805 * a - 0.1 * (np.log(2) - 0.5)),
        [[-1.1 * 0.805 * a + 0.1 * 0.5, 0], [0, 0.805 * a]],
        unit=1 / 4,
        beta=0.1,
    )


def test_bounded_divergence_by_hand() -> None:
    """Without reward and at beta 1, log π_ref/π = 2, 4, 6, -4, -6: k3(2) = e² - 3 pulls by e² - 1; k3(4) > 10 and
    6 cost 10 and don't pull; k3(-4) = e⁻⁴ + 3 pulls by e⁻⁴ - 1; -6 costs k3(-5) = e⁻⁵ + 4 and doesn't pull.
    """
    away, e = np.array([2.0, 4, 6, -4, -6]), np.exp
    sample = by_hand([[1.0] * 5], [1], p_old=1e-3)
    sample = sample.but(ref_logprob=sample.logprob + away)
    moves(
        "adv_reweight",
        sample,
        (e(2) - 3 + 20 + e(-4) + 3 + e(-5) + 4) / 5,
        [np.array([1 - e(2), 0, 0, 1 - e(-4), 0]) / 5],
        beta=1.0,
        bounded_kl=True,
    )


def test_bounded_divergence_is_its_oracle() -> None:
    sample = ragged(0)
    # four times as far from the reference, and 20 nats less of everything, so that all stay log-probabilities
    reference = sample.logprob + 4 * (sample.ref_logprob - sample.logprob) - 20
    sample = sample.but(logprob=sample.logprob - 20, old_logprob=sample.old_logprob - 20, ref_logprob=reference)
    far = np.abs(sample.ref_logprob - sample.logprob)[sample.mask]
    assert (far > 5).any() and (far < 5).any()
    options = {"beta": 0.3, "bounded_kl": True}
    close(outcome("adv_reweight", sample, **options), score("adv_reweight", sample, **options))

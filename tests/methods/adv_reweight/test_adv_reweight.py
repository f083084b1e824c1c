"""Advantage Reweighting against its oracle, by hand, and its reduction to GRPO."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run, score

OPTIONS = [{}, {"a": 0.3, "beta": 0.0}, {"a": 1.0, "beta": 0.5, "dual": 3.0}, {"low": 0.1, "high": 0.4, "a": 0.0}]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("adv_reweight", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """p_old = 1/40: w = 0.2 / 40 + 0.8 = 0.805. Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6).

    1.1 and 1.5 (clipped to 1.24) for A > 0, 20 (stopped at 10) and 1 for A < 0; k3 to a reference at u = 0.5, which
    costs 0.1 (log 2 - 0.5) at (0, 0) and moves it by -0.1 · 0.5.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[1.1, 1.5], [20, 1]], [1, 0], [0, 0], p_old=1 / 40)
    reference = sample.logprob + np.array([[np.log(0.5), 0], [0, 0]])
    got = run(tokenpo.method("adv_reweight", beta=0.1), sample.but(ref_logprob=reference))
    assert got.value == pytest.approx(-((1.1 + 1.24 - 10 - 1) * 0.805 * a - 0.1 * (np.log(2) - 0.5)) / 4, rel=1e-12)
    expected = np.array([[-1.1 * 0.805 * a + 0.1 * 0.5, 0], [0, 0.805 * a]]) / 4
    np.testing.assert_allclose(got.gradient, expected, rtol=1e-12)


def test_bounded_divergence_by_hand() -> None:
    """Without reward and at beta 1, log π_ref/π = 2, 4, 6, -4, -6: k3(2) = e² - 3 pulls by e² - 1; k3(4) > 10 and
    6 cost 10 and don't pull; k3(-4) = e⁻⁴ + 3 pulls by e⁻⁴ - 1; -6 costs k3(-5) = e⁻⁵ + 4 and doesn't pull.
    """
    away, e = np.array([2.0, 4, 6, -4, -6]), np.exp
    sample = by_hand([[1.0] * 5], [1], [0], p_old=1e-3)
    sample = sample.but(ref_logprob=sample.logprob + away)
    got = run(tokenpo.method("adv_reweight", beta=1.0, bounded_kl=True), sample)
    assert got.value == pytest.approx((e(2) - 3 + 20 + e(-4) + 3 + e(-5) + 4) / 5, rel=1e-12)
    np.testing.assert_allclose(got.gradient, [np.array([1 - e(2), 0, 0, 1 - e(-4), 0]) / 5], rtol=1e-12)


def test_bounded_divergence_is_its_oracle() -> None:
    sample = ragged(0)
    # four times as far from the reference, and 20 nats less of everything, so that all stay log-probabilities
    reference = sample.logprob + 4 * (sample.ref_logprob - sample.logprob) - 20
    sample = sample.but(logprob=sample.logprob - 20, old_logprob=sample.old_logprob - 20, ref_logprob=reference)
    far = np.abs(sample.ref_logprob - sample.logprob)[sample.mask]
    assert (far > 5).any() and (far < 5).any()
    options = {"beta": 0.3, "bounded_kl": True}
    close(run(tokenpo.method("adv_reweight", **options), sample), score("adv_reweight", sample, **options))


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_without_reweighting_it_is_grpo_over_tokens(beta: float) -> None:
    """a = 0 without the dual clip, on equal lengths, where token mean and response mean are one."""
    sample = ragged(0, equal_lengths=True)
    ours = tokenpo.method("adv_reweight", a=0.0, high=0.2, dual=None, beta=beta)
    close(run(ours, sample), run(tokenpo.method("grpo", beta=beta), sample), rtol=1e-12)

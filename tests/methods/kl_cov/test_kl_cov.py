"""KL-Cov against its oracle and by hand."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run

OPTIONS = [{}, {"fraction": 0.1}, {"fraction": 0.5, "coef": 0.3}, {"fraction": 1.0, "coef": 2.0}]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("kl_cov", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """One token each, A = a, 0, -a (a = 1 / (1 + 1e-6)), lp = -1, -2, -6 with mean -3: cov = 2a, 0, 3a.

    k = max(1, int(0.006)) = 1: the third token, r = 0.5, pays |log 0.5| and is pushed up by it.
    J = (1.5 a - 0.5 a - log 2) / 3; ∂J/∂lp = 1.5 a, 0, -0.5 a + 1 over 3. No clip at 1.5.
    """
    a = 1 / (1 + 1e-6)
    sample = by_hand([[1.5], [1.0], [0.5]], [2, 1, 0], [0, 0, 0])
    lp = np.array([[-1.0], [-2.0], [-6.0]])
    sample = sample.but(old_logprob=lp - np.log([[1.5], [1.0], [0.5]]), logprob=lp)
    got = run(tokenpo.method("kl_cov"), sample)
    assert got.value == pytest.approx(-(a - np.log(2)) / 3, rel=1e-12)
    np.testing.assert_allclose(got.gradient, [[-1.5 * a / 3], [0], [(0.5 * a - 1) / 3]], rtol=1e-12)


def test_of_equal_covariances_the_earlier_pay() -> None:
    """Equal rewards: every covariance is 0, and two of the four tokens are to be held.

    J = (0 − |log 2| − |log 2|) / 4; the gradient of the first two is −sign(log 2) / 4 of J.
    """
    sample = by_hand([[2.0, 2.0], [2.0, 2.0]], [1, 1], [0, 0])
    got = run(tokenpo.method("kl_cov", fraction=0.5), sample)
    assert got.value == pytest.approx(2 * np.log(2) / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient, [[0.25, 0.25], [0, 0]], rtol=1e-12)


def test_without_penalty_it_is_an_unclipped_token_mean() -> None:
    plain = tokenpo.method("dapo", low=1.0, high=1e9, dual=1e9)
    close(run(tokenpo.method("kl_cov", coef=0.0), ragged(0)), run(plain, ragged(0)), rtol=1e-12)

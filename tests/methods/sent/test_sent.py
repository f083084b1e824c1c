"""SENT against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, ragged, run, score

OPTIONS = [
    {},
    {"fraction": 0.1, "coef": 0.3},
    {"fraction": 0.9, "low_entropy": 0.5, "strong": 3.0, "weak": 0.1, "beta": 0.2},
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("source", ["old", "current"])
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, source: str, options: dict) -> None:
    sample = ragged(seed, binary=seed % 2 == 0)
    scored = {"scored_entropy": sample.old_entropy if source == "old" else sample.entropy}
    close(run(tokenpo.method("sent", entropy=source, **options), sample), score("sent", sample, scored, **options))


def test_by_hand() -> None:
    """One token each, A = a, 0, -a, (a = 1 / (1 + 1e-6)) and one rollout more of A = 0 and the highest entropy.

    int(0.8 · 4) = 3 calm tokens: lp = -1, -2, -6 with mean -3: cov = 2 a, 0, 3 a. The third, r = 0.5, pays 2 |log 0.5|;
    the second, r = 1, would pay half of 0. J = (1.5 a - 0.5 a - 2 log 2) / 4; ∂J/∂lp = 1.5 a, -1/2, -0.5 a + 2 over 4:
    the second token's r is 1.1 here, so that it pays log(1.1) / 2.
    """
    a = 1 / (1 + 1e-6)
    ratio = np.array([[1.5], [1.1], [0.5], [1.0]])
    lp = np.array([[-1.0], [-2.0], [-6.0], [-50.0]])
    sample = by_hand([[1.0]] * 4, [2, 1, 0, 1], [0, 0, 0, 1], entropy=[[1.0], [1], [1], [2]])
    got = run(tokenpo.method("sent"), sample.but(old_logprob=lp - np.log(ratio), logprob=lp))
    assert got.value == pytest.approx(-(a - 2 * np.log(2) - np.log(1.1) / 2) / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient[:, 0], [-1.5 * a / 4, 0.125, (0.5 * a - 2) / 4, 0], rtol=1e-12)


def test_on_all_tokens_with_one_price_it_is_kl_cov() -> None:
    """low_entropy = 1, strong = 1, weak = 0."""
    ours = tokenpo.method("sent", low_entropy=1.0, strong=1.0, weak=0.0, fraction=0.1, coef=0.7)
    close(run(ours, ragged(0)), run(tokenpo.method("kl_cov", fraction=0.1, coef=0.7), ragged(0)), rtol=1e-12)

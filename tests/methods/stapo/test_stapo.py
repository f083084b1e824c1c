"""STAPO against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, ragged, run, score

OPTIONS = [{"prob": 0.05}, {"prob": 0.3, "quantile": 0.5, "low": 0.1}, {"prob": 1.0, "quantile": 1.0, "high": 0.5}, {}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", ["current", "old"])
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, policy: str, options: dict) -> None:
    sample = ragged(seed, binary=seed % 2 == 0)
    now = {"scored_logprob": sample.logprob, "scored_entropy": sample.entropy}
    then = {"scored_logprob": sample.old_logprob, "scored_entropy": sample.old_entropy}
    got = run(tokenpo.method("stapo", policy=policy, **options), sample)
    close(got, score("stapo", sample, now if policy == "current" else then, **options))


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6). p_old = 0.001, so p < 0.002 for r < 2.

    Rare tokens of row 0 have entropies 1, 2, 3, 4; their 0.75 quantile is round(2.25) = the third smallest, 3: 1 and 2
    are below it and go. 2.5 is not rare. Row 1 is blamed: its rare token stays. 4 of the 6 tokens are counted.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    entropy = [[2.0, 1, 4, 3, 0.5], [0.1]]
    sample = by_hand([[1.1, 1, 0.9, 1.2, 2.5], [1]], [1, 0], [0, 0], p_old=0.001, entropy=entropy)
    got = run(tokenpo.method("stapo"), sample)
    assert got.value == pytest.approx(-(0.9 + 1.2 + 1.28 - 1) * a / 4, rel=1e-12)
    expected = [[0, 0, -0.9, -1.2, 0], [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(got.gradient, np.array(expected) * a / 4, rtol=1e-12)


def test_when_nothing_is_rare_it_is_dapo() -> None:
    ours = run(tokenpo.method("stapo", prob=0.0), ragged(0))
    close(ours, run(tokenpo.method("dapo", dual=1e9), ragged(0)), rtol=1e-12)

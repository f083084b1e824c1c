"""Archer against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, ragged, run, score

OPTIONS = [{}, {"quantile": 0.5, "kl": 0.3, "dual": 3.0}, {"low_clip": 0.1, "high_clip": 0.9, "quantile": 0.0}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("source", ["old", "current"])
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, source: str, options: dict) -> None:
    sample = ragged(seed, binary=seed % 2 == 0)
    scored = {"scored_entropy": sample.old_entropy if source == "old" else sample.entropy}
    close(run(tokenpo.method("archer", entropy=source, **options), sample), score("archer", sample, scored, **options))


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6). Six entropies: the 0.8 quantile is the fifth smallest.

    Row 0: only the token of entropy 9 is above 5: it may rise to 1.5; the others to 1.2. Row 1 has one token, which is
    not above itself: 0.7 is held at 0.8. Tokens of low entropy pay 0.1 k3; u = 0.5 at (0, 0): 0.1 (log 2 - 0.5), moved
    by -0.1 (1 - 0.5); the high one at (0, 5) has u = 0.5 too and pays nothing.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    entropy = [[1.0, 2, 3, 4, 5, 9], [7]]
    sample = by_hand([[1.1, 1.3, 1, 1, 1, 1.4], [0.7]], [1, 0], [0, 0], old_entropy=entropy)
    reference = sample.logprob.copy()
    reference[0, [0, 5]] += np.log(0.5)
    got = run(tokenpo.method("archer", kl=0.1), sample.but(ref_logprob=reference))
    total = (1.1 + 1.2 + 3 + 1.4 - 0.8) * a - 0.1 * (np.log(2) - 0.5)
    assert got.value == pytest.approx(-total / 7, rel=1e-12)
    first = [-1.1 * a + 0.1 * 0.5, 0, -a, -a, -a, -1.4 * a]
    np.testing.assert_allclose(got.gradient, np.array([first, [0] * 6]) / 7, rtol=1e-12)


def test_with_one_clip_and_no_penalty_it_is_dapo() -> None:
    ours = tokenpo.method("archer", low_clip=0.2, high_clip=0.2, kl=0.0, dual=10.0)
    close(run(ours, ragged(0)), run(tokenpo.method("dapo", low=0.2, high=0.2), ragged(0)), rtol=1e-12)

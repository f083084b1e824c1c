"""Forking tokens against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, ragged, run, score

OPTIONS = [{}, {"fraction": 0.5, "beta": 0.3}, {"fraction": 0.01, "low": 0.1}, {"dual": 1.5, "fraction": 0.6}]
OPTIONS += [{"denominator": "kept", "beta": 0.3}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("source", ["old", "current"])
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, source: str, options: dict) -> None:
    sample = ragged(seed, binary=seed % 2 == 0)
    scored = {"scored_entropy": sample.old_entropy if source == "old" else sample.entropy}
    close(
        run(tokenpo.method("forking_tokens", entropy=source, **options), sample),
        score("forking_tokens", sample, scored, **options),
    )


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). Entropies 1 ... 5: the 0.8 quantile is round(3.2) = the
    fourth smallest: 4 and 5 fork. Of row 0 the token 1.1, of row 2 the token 2; the denominator stays 5.
    """
    a = 1 / (1 + 1e-6)
    entropy = [[5.0, 1], [3], [2, 4]]
    sample = by_hand([[1.1, 1.0], [1.3], [1.0, 2.0]], [2, 1, 0], [0, 0, 0], old_entropy=entropy)
    got = run(tokenpo.method("forking_tokens"), sample)
    assert got.value == pytest.approx(-(1.1 - 2) * a / 5, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.1, 0], [0, 0], [0, 2]]) * a / 5, rtol=1e-12)


def test_as_the_authors_divide() -> None:
    """The same with two of five tokens kept: everything times 5/2. At dual 1.5 row 2's token stays at 1.5."""
    a = 1 / (1 + 1e-6)
    entropy = [[5.0, 1], [3], [2, 4]]
    sample = by_hand([[1.1, 1.0], [1.3], [1.0, 2.0]], [2, 1, 0], [0, 0, 0], old_entropy=entropy)
    got = run(tokenpo.method("forking_tokens", denominator="kept", dual=1.5), sample)
    assert got.value == pytest.approx(-(1.1 - 1.5) * a / 2, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.1, 0], [0, 0], [0, 0]]) * a / 2, rtol=1e-12)


def test_the_reference_reaches_every_token() -> None:
    """Without reward, β k3 at u = π_ref/π = 0.5 moves each of the two tokens by β (1 - 0.5) / 2, forking or not."""
    sample = by_hand([[1.0], [1.0]], [1, 1], [0, 0], old_entropy=[[1.0], [2.0]])
    got = run(tokenpo.method("forking_tokens", beta=0.1), sample.but(ref_logprob=sample.logprob + np.log(0.5)))
    assert got.value == pytest.approx(0.1 * (np.log(2) - 0.5), rel=1e-12)
    np.testing.assert_allclose(got.gradient, [[0.025], [0.025]], rtol=1e-12)


def test_when_every_token_forks_it_is_dapo() -> None:
    ours = run(tokenpo.method("forking_tokens", fraction=1.0), ragged(0))
    close(ours, run(tokenpo.method("dapo", dual=1e9), ragged(0)), rtol=1e-12)

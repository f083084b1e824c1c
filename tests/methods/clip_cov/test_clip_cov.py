"""Clip-Cov by hand, and what is special about it."""

from typing import Any

import numpy as np
import pytest

import tokenpo
from oracle_support import Sample, assemble, by_hand, close, module, moves, ragged, run, score, tensors

LOOSE = {"cov_low": 0.1, "cov_high": 5.0}


def _drawn(objective: Any, sample: Sample, seed: int = 0) -> np.ndarray:
    step = assemble(objective, tensors(sample), seed=seed)
    return (objective.loss(step.batch, step.totals).terms["weight"].numpy() == 0) & sample.mask


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options", [{}, {"fraction": 0.1, **LOOSE}, {"fraction": 1.0}, {"fraction": 0.05, "low": 0.2, "high": 0.3, **LOOSE}]
)
def test_is_its_oracle(seed: int, options: dict) -> None:
    sample = ragged(seed, binary=seed % 2 == 0)
    objective = tokenpo.method("clip_cov", **options)
    got = run(objective, sample, seed=seed)
    clip = {k: v for k, v in options.items() if k in ("low", "high")}
    close(got, score("clip_cov", sample, selected=(got.terms["weight"] == 0) & sample.mask, **clip))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clip", [{}, {"low": 0.2, "high": 0.2}])
def test_everything_eligible_is_drawn_at_fraction_one(seed: int, clip: dict) -> None:
    sample = ragged(seed)
    eligible = module("clip_cov").eligible(sample, **LOOSE, **clip)
    assert eligible.sum() > 3
    np.testing.assert_array_equal(_drawn(tokenpo.method("clip_cov", fraction=1.0, **LOOSE, **clip), sample), eligible)


def test_the_draw_is_uniform_over_the_eligible() -> None:
    """max(int(0.04 · n), 1) tokens a draw; over 400 draws every eligible token comes up equally often (4 sigma)."""
    sample, draws = ragged(1), 400
    eligible = module("clip_cov").eligible(sample, **LOOSE)
    k = max(int(0.04 * sample.mask.sum()), 1)
    assert 1 < k < eligible.sum()
    objective = tokenpo.method("clip_cov", fraction=0.04, **LOOSE)
    counts = np.zeros(sample.mask.shape)
    for seed in range(draws):
        drawn = _drawn(objective, sample, seed)
        assert drawn.sum() == k
        counts += drawn
    assert not counts[~eligible].any()
    p = k / eligible.sum()
    assert np.abs(counts[eligible] - draws * p).max() < 4 * np.sqrt(draws * p * (1 - p))


def test_the_default_fraction_draws_one_token_of_a_small_batch() -> None:
    sample = ragged(1)
    assert _drawn(tokenpo.method("clip_cov"), sample).sum() == 1
    assert not _drawn(tokenpo.method("clip_cov", cov_low=1e6, cov_high=1e7), sample).any()


def test_by_hand() -> None:
    """One token each, A = a, 0, -a (a = 1 / (1 + 1e-6)), lp = -1, -2, -6 with mean -3: cov = 2a, 0, 3a.

    With 2.5 < cov < 5 the third token loses its surrogate: J = 1.5 a / 3.
    """
    a = 1 / (1 + 1e-6)
    sample = by_hand([[1.5], [1.0], [0.5]], [2, 1, 0])
    lp = np.array([[-1.0], [-2.0], [-6.0]])
    sample = sample.but(old_logprob=lp - np.log([[1.5], [1.0], [0.5]]), logprob=lp)
    moves("clip_cov", sample, -1.5 * a / 3, [[-1.5 * a / 3], [0], [0]], cov_low=2.5)
    assert {int(_drawn(tokenpo.method("clip_cov"), sample, seed).argmax()) for seed in range(20)} == {0, 2}

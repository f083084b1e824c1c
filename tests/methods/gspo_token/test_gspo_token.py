"""GSPO-token against its oracle, its reduction to GSPO, and what it adds: token-level advantages."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run

OPTIONS = [{}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 1e-4}]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("gspo_token", ragged(seed, binary=seed % 2 == 0), **options)


@pytest.mark.parametrize("options", OPTIONS)
def test_constant_advantage_makes_it_gspo(options: dict) -> None:
    sample = ragged(5)
    close(
        run(tokenpo.method("gspo_token", **options), sample), run(tokenpo.method("gspo", **options), sample), rtol=1e-12
    )


def test_token_advantages_by_hand() -> None:
    """One response, ratios 1.21 and 1, s = 1.1, advantages 2 and -1: every token has the ratio s and its own A.

    J = (1.1 · 2 - 1.1 · 1) / 2, ∂J/∂lp_t = 1.1 A_t / 2.
    """
    sample = by_hand([[1.21, 1.0]], [1], [0])
    got = run(tokenpo.method("gspo_token", low=0.2, high=0.2), sample, advantage=np.array([[2.0, -1.0]]))
    assert got.value == pytest.approx(-0.55, rel=1e-12)
    np.testing.assert_allclose(got.gradient, [[-1.1, 0.55]], rtol=1e-12)

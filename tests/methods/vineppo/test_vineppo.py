"""VinePPO against its oracle, by hand, and what it asks an engine for."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, ragged, run
from tokenpo.core.parts import BehindToken, Continuations, EveryTokens


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"low": 0.1, "high": 0.4}])
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("vineppo", ragged(seed), **options)


def test_by_hand() -> None:
    """Gains 0.5, 0.5, -0.5, -0.5: mean 0, variance 4/4 / 3 = 1/3, A = ±a, a = 1/2 / sqrt(1/3 + 1e-8).

    1.1 a and 1.5 clipped at 1.2 a; -0.9 a and 0.7 clipped at 0.8: -0.8 a.
    """
    a = 0.5 / np.sqrt(1 / 3 + 1e-8)
    sample = by_hand([[1.1, 1.5], [0.9, 0.7]], [1, 0], [0, 0], gain=[[0.5, 0.5], [-0.5, -0.5]])
    got = run(tokenpo.method("vineppo"), sample)
    assert got.value == pytest.approx(-(1.1 + 1.2 - 0.9 - 0.8) * a / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.1, 0], [0.9, 0]]) * a / 4, rtol=1e-12)


def test_equal_gains_teach_nothing() -> None:
    got = run(tokenpo.method("vineppo"), by_hand([[1.0] * 3] * 2, [1, 0], [0, 0], gain=[[0.1] * 3] * 2))
    assert not got.terms["advantage"].any()


def test_what_is_drawn() -> None:
    """Of the method: so many continuations from each step, cut by number or by a token."""
    assert tokenpo.method("vineppo").continuations == Continuations(EveryTokens(16), 9)
    cut = tokenpo.method("vineppo", separator=7, continuations=3)
    assert cut.continuations == Continuations(BehindToken(7), 3)
    assert cut.needs == {"gain", "token_ids"}
    assert tokenpo.method("dapo").continuations is None


def test_obeys_the_laws() -> None:
    tokenpo.check_method(tokenpo.method("vineppo"))

"""VinePPO by hand, and what is special about it."""

import numpy as np

import tokenpo
from oracle_support import by_hand, moves, outcome
from tokenpo.core.parts import BehindToken, Continuations, EveryTokens


def test_by_hand() -> None:
    """Gains 0.5, 0.5, -0.5, -0.5: mean 0, variance 4/4 / 3 = 1/3, A = ±a, a = 1/2 / sqrt(1/3 + 1e-8).

    1.1 a and 1.5 clipped at 1.2 a; -0.9 a and 0.7 clipped at 0.8: -0.8 a.
    """
    a = 0.5 / np.sqrt(1 / 3 + 1e-8)
    sample = by_hand([[1.1, 1.5], [0.9, 0.7]], [1, 0], gain=[[0.5, 0.5], [-0.5, -0.5]])
    moves("vineppo", sample, -(1.1 + 1.2 - 0.9 - 0.8), [[-1.1, 0], [0.9, 0]], unit=a / 4)


def test_equal_gains_teach_nothing() -> None:
    got = outcome("vineppo", by_hand([[1.0] * 3] * 2, [1, 0], gain=[[0.1] * 3] * 2))
    assert not got.terms["advantage"].any()


def test_what_is_drawn() -> None:
    """Of the method: so many continuations from each step, cut by number or by a token."""
    assert tokenpo.method("vineppo").continuations == Continuations(EveryTokens(16), 9)
    cut = tokenpo.method("vineppo", separator=7, continuations=3)
    assert cut.continuations == Continuations(BehindToken(7), 3)
    assert cut.needs == {"gain", "token_ids"}
    assert tokenpo.method("dapo").continuations is None

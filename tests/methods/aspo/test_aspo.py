"""ASPO by hand, and what is special about it."""

import numpy as np

import tokenpo
from oracle_support import by_hand, moves, outcome, ragged, run


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6). Entropies 1, 2, 9: the 0.8 quantile is round(1.6) = the third,
    so no token is above it; 1, 2, 3, 9, 9, 8: round(4) = the fifth smallest, 9, and again none; quantile 0.5: rank
    round(1) and round(2.5) = 2: 9 of row 0, and 9, 9, 8 of row 1 are high: clips 0.2 | 0.4.

    Row 0 turns r over: 1/0.25 = 4 stops at 3 and keeps its gradient; 1/1.1; 1.3 is within 1.4: 1/1.3.
    Row 1: 0.7 is clipped at 0.8; 0.9; 5 stops at 3 and keeps its gradient; high: 0.7 stays, 0.5 clipped at 0.6; 1.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    entropy = [[1.0, 2, 9], [1, 2, 3, 9, 9, 8]]
    sample = by_hand([[0.25, 1.1, 1.3], [0.7, 0.9, 5, 0.7, 0.5, 1]], [1, 0], p_old=0.1, old_entropy=entropy)
    praise, blame = 3 + 1 / 1.1 + 1 / 1.3, 0.8 + 0.9 + 3 + 0.7 + 0.6 + 1
    expected = [[-3, -1 / 1.1, -1 / 1.3, 0, 0, 0], [0, 0.9, 3, 0.7, 0, 1]]
    moves("aspo", sample, -(praise - blame) * a / 9, np.array(expected) * a / 9, quantile=0.5)


def test_wrong_responses_are_treated_as_by_a_clip() -> None:
    """On A < 0, with one clip and a dual clip that nothing meets, it is DAPO; right responses are not."""
    sample = ragged(0)
    ours = outcome("aspo", sample, low_eps=0.2, high_eps=0.2, dual=1e9)
    dapo = outcome("dapo", sample, low=0.2, high=0.2, dual=1e9)
    wrong = ours.terms["advantage"] < 0
    np.testing.assert_allclose(ours.gradient[wrong], dapo.gradient[wrong], rtol=1e-12, atol=1e-17)
    assert not np.allclose(ours.gradient, dapo.gradient)


def test_cut_off_is_what_lies_outside_and_has_an_advantage() -> None:
    """0.5 of a wrong response and 1.5 of a right one lie outside 0.8 and 1.2; of responses that are all right, none."""
    ratios = [[0.5, 1.5, 1.0], [0.5, 1.5, 1.0]]
    method = tokenpo.method("aspo", low_eps=0.2, high_eps=0.2)
    right, equal = (run(method, by_hand(ratios, rewards)).terms["clipped"] for rewards in ([1, 0], [1, 1]))
    np.testing.assert_array_equal(right, [[False, True, False], [True, False, False]])
    assert not equal.any()

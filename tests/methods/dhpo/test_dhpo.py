"""DHPO by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, moves, outcome, ragged

FORMS = ["mix_of_mins", "min_of_mixes"]
every_form = pytest.mark.parametrize("form", FORMS)


@pytest.mark.parametrize(("form", "value", "slope"), [("mix_of_mins", 0.5502, 0.05), ("min_of_mixes", 0.8, 0.8)])
def test_by_hand(form: str, value: float, slope: float) -> None:
    """A = 1 on one response at r = 0.1 and 22.5: s = sqrt(2.25) = 1.5; A = 0 on another of two. Half and half.

    Token 0: (0.1 + 1.0004) / 2 = 0.5502, of which only r moves, 0.05; the other form: m = (0.1 + 1.5) / 2 = 0.8 is less
    than m' = (0.8 + 1.0004) / 2: both ratios move, and the outlier of one holds the minimum.
    Token 1: both are clipped in either form, (1.28 + 1.0004) / 2 = 1.1402.
    """
    sample, advantage = by_hand([[0.1, 22.5], [5.0, 5.0]], [0, 0]), np.array([[1.0, 1.0], [0.0, 0.0]])
    got = moves("dhpo", sample, -(value + 1.1402) / 4, [[-slope / 4, 0], [0, 0]], advantage=advantage, form=form)
    assert got.terms["clipped"].tolist() == [[0, 1], [0, 0]]
    np.testing.assert_allclose(got.terms["ratio"], [[0.8, 12], [5, 5]], rtol=1e-12)


@every_form
def test_entropy_shares_by_hand(form: str) -> None:
    """A = -1 at r = 2 and 1/2, s = 1; H_old = 4 and 1: a = 1 and 1/4. Token 0 moves by r = 2. Token 1: r is clipped at
    0.8 and s is not: J = -(0.8 / 4 + 3 / 4), moved by the 3/4 of s alone.
    """
    sample = by_hand([[2.0, 0.5]], [0], old_entropy=[[4.0, 1.0]])
    got = moves(
        "dhpo", sample, (2 + 0.95) / 2, [[2 / 2, 0.75 / 2]], advantage=-np.ones((1, 2)), mixing="entropy", form=form
    )
    assert not got.terms["clipped"].any()
    ratio, low, high = (got.terms[name][0] for name in ("ratio", "low", "high"))
    np.testing.assert_allclose(ratio, [2, 0.875], rtol=1e-12)
    np.testing.assert_allclose(low, [0.8, 0.8 / 4 + 0.9997 * 0.75], rtol=1e-12)
    np.testing.assert_allclose(high, [1.28, 1.28 / 4 + 1.0004 * 0.75], rtol=1e-12)


def test_an_entropy_below_zero_is_rounding() -> None:
    """a = 1 and 0: token 1 moves by s = 1 alone, r = 1/2 or not."""
    sample = by_hand([[2.0, 0.5]], [0], old_entropy=[[1.0, -1e-3]])
    moves("dhpo", sample, None, [[2 / 2, 1 / 2]], advantage=-np.ones((1, 2)), mixing="entropy")


@every_form
def test_sure_tokens_beside_one_that_is_not_move_as_in_gspo_token(form: str) -> None:
    """a = 0 at every token but the first of each response."""
    sample = ragged(1)
    first = np.zeros(sample.mask.shape)
    first[:, 0] = 1
    ours = outcome("dhpo", sample.but(old_entropy=first), mixing="entropy", form=form)
    gspo, grpo = outcome("gspo_token", sample), outcome("grpo", sample, high=0.28)
    np.testing.assert_allclose(ours.gradient[:, 1:], gspo.gradient[:, 1:], rtol=1e-12, atol=1e-17)
    np.testing.assert_allclose(ours.gradient[:, 0], grpo.gradient[:, 0], rtol=1e-12, atol=1e-17)
    assert np.count_nonzero(ours.gradient[:, 1:]) > 10


@every_form
def test_a_token_is_clipped_where_neither_ratio_moves_it(form: str) -> None:
    """A = 1 at r = 1.1 twice: s = 1.1 is held at 1.0004, r is not, J = (1.1 + 1.0004) / 2 moves by 1.1 / 2."""
    got = moves(
        "dhpo", by_hand([[1.1, 1.1]], [0]), -1.0502, [[-0.55 / 2, -0.55 / 2]], advantage=np.ones((1, 2)), form=form
    )
    assert got.terms["clipped"].tolist() == [[0, 0]]


@every_form
def test_a_ratio_without_a_share_holds_nothing(form: str) -> None:
    """A = 1 at r = 3/2 and 2/3, s = 1; H_old = 4 and 1: a = 1 and 1/4. Token 0 is r alone, held at 1.28. Token 1:
    2/3 / 4 + 3/4 = 11/12, of which everything moves.
    """
    sample = by_hand([[1.5, 2 / 3]], [0], old_entropy=[[4.0, 1.0]])
    got = outcome("dhpo", sample, advantage=np.ones((1, 2)), mixing="entropy", form=form)
    assert got.value == pytest.approx(-(1.28 + 11 / 12) / 2, rel=1e-12)
    np.testing.assert_allclose(got.gradient, [[0, -11 / 24]], rtol=1e-12, atol=1e-15)
    assert got.terms["clipped"].tolist() == [[1, 0]]

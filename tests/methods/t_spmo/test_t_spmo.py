"""T-SPMO by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves, outcome

ONE = [[1.0, 1.0]] * 3


def test_by_hand() -> None:
    """Responses a b, a c, d e with rewards 1, 0, 0.

    At the root: A(a) = 1/2 - 0, A(d) = 0 - 1/2. Behind a: A(b) = 1, A(c) = -1. Behind d nothing but e: 0. Six tokens.
    """
    sample = by_hand(ONE, [1, 0, 0], token_ids=[[1, 2], [1, 3], [4, 5]])
    moves("t_spmo", sample, None, -np.array([[0.5, 1], [0.5, -1], [-0.5, 0]]) / 6, count="rollouts")


def test_pairs_count_once() -> None:
    """The same tree: four branching pairs, (root, a) shared by two responses: a quarter each, and an eighth for a."""
    sample = by_hand(ONE, [1, 0, 0], token_ids=[[1, 2], [1, 3], [4, 5]])
    moves("t_spmo", sample, None, -np.array([[0.25, 1], [0.25, -1], [-0.5, 0]]) / 4)


def test_a_response_that_ends_takes_no_alternative() -> None:
    """Responses a and a b, rewards 1 and 0: behind a only b goes on."""
    sample = by_hand([[1.0], [1.0, 1.0]], [1, 0], token_ids=[[1], [1, 2]])
    assert not outcome("t_spmo", sample).gradient.any()


def test_equal_rewards_part_without_a_gain() -> None:
    """Rewards of 0.1 in branches of three and one, whose means round differently."""
    sample = by_hand([[1.0]] * 4, [0.1] * 4, token_ids=[[1], [1], [1], [2]])
    assert not outcome("t_spmo", sample).gradient.any()


def test_pairs_are_counted_exactly() -> None:
    """Eleven answers of one kind, one of another, right: |U| = 11/11 + 1/1 = 2 of 12 tokens, A = -1/11 · 12/2, 12/2."""
    sample = by_hand([[1.0]] * 12, [0] * 11 + [1], token_ids=[[1]] * 11 + [[2]])
    got = outcome("t_spmo", sample)
    np.testing.assert_allclose(got.gradient[:, 0] * -12, [-6 / 11] * 11 + [6], rtol=1e-15)


def test_a_gap_in_the_mask_is_not_the_end() -> None:
    """A tool's token at place 0 of both, then the responses part."""
    sample = by_hand([[1.0, 1.0]] * 2, [1, 0], token_ids=[[7, 1], [7, 2]])
    sample = sample.but(mask=np.array([[False, True], [False, True]]))
    moves("t_spmo", sample, None, [[0, -0.5], [0, 0.5]])

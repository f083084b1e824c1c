"""TW-GRPO by hand, and what is special about it."""

import numpy as np

import tokenpo
from oracle_support import by_hand, close, moves, outcome, ragged, run


def test_by_hand() -> None:
    """Rewards 1, 0: std sqrt(1/2), A = ±a with a = 1/2 / (sqrt(1/2) + 1e-4). d is 1, 3, 2 at the three positions, the
    last two of which only row 0 reaches: with alpha = 2, w = 1, 1 + 2 / (2 + 1e-8), 1 + 1 / (2 + 1e-8).

    Row 0: 1.1, 1 and 1.5 clipped at 1.28. Row 1: 0.7 clipped at 0.8 against -a.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-4)
    w = [1 + 2 / (2 + 1e-8), 1 + 1 / (2 + 1e-8)]
    sample = by_hand([[1.1, 1, 1.5], [0.7]], [1, 0], divergence=[[1, 3, 2], [1]])
    moves("tw_grpo", sample, -(1.1 + w[0] + 1.28 * w[1] - 0.8), [[-1.1, -w[0], 0], [0, 0, 0]], unit=a / 4, alpha=2)


def test_extremes_are_of_the_group_and_of_living_positions() -> None:
    """Group 0 lives at positions 0 and 1 (d 5 and 6), group 1 at position 0 alone (d 100): its weight is 1, and neither
    it nor the zeros of the padding are group 0's extremes. alpha 1.5: w = 1, 1 + 0.5 / (1 + 1e-8)."""
    sample = by_hand(
        [[1, 1], [1], [1], [1]], [1, 0, 1, 0], [0, 0, 1, 1], divergence=[[5, 6], [5], [100], [100]]
    )  # fmt: skip
    weight = outcome("tw_grpo", sample, alpha=1.5).terms["weight"]
    np.testing.assert_allclose(weight[sample.mask], [1, 1 + 0.5 / (1 + 1e-8), 1, 1, 1], rtol=1e-12)


def _dapo(sample, low: float = 0.2, high: float = 0.28):
    """DAPO without dual clip, 1e-4 added to the deviation as in the authors' code."""
    import dataclasses

    from tokenpo.core.parts import GroupAdvantage

    dapo = tokenpo.method("dapo", dual=None, low=low, high=high)
    return run(dataclasses.replace(dapo, credit=GroupAdvantage(eps=1e-4)), sample)


def test_without_weights_it_is_dapo() -> None:
    sample = ragged(0)
    close(outcome("tw_grpo", sample, alpha=1.0), _dapo(sample), rtol=1e-12)
    assert tokenpo.method("tw_grpo", alpha=1.0).needs == frozenset()


def test_responses_that_do_not_part_leave_dapo() -> None:
    sample = ragged(0)
    sample = sample.but(divergence=np.zeros(sample.mask.shape))
    close(outcome("tw_grpo", sample), _dapo(sample), rtol=1e-12)

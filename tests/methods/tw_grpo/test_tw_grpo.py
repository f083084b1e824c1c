"""TW-GRPO by hand, and what is special about it."""

import dataclasses

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, moves, outcome, ragged, run
from tokenpo.core.parts import GroupAdvantage


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


@pytest.mark.parametrize("options", [{"alpha": 1.0}, {}])
def test_without_weights_and_where_responses_do_not_part_it_is_dapo(options: dict) -> None:
    """Without the dual clip, and with 1e-4 beside the deviation as in the authors' code."""
    sample = ragged(0) if options else ragged(0).but(divergence=np.zeros(ragged(0).mask.shape))
    dapo = dataclasses.replace(tokenpo.method("dapo", dual=None), credit=GroupAdvantage(eps=1e-4))
    close(outcome("tw_grpo", sample, **options), run(dapo, sample), rtol=1e-12)

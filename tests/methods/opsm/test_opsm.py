"""OPSM by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, moves, outcome


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a. Both responses fell by log 2 a token on average, 0.69 > 0.5: (1/4, 1) and (1/2). Only the
    wrong one is masked; without the mask it would be clipped at 0.8. The right one: (1/4 + 1) a / 2, over 2 rows."""
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[0.25, 1.0], [0.5]], [1, 0])
    moves("opsm", sample, -1.25 * a / 4, [[-0.25 * a / 4, -a / 4], [0, 0]])
    assert outcome("opsm", sample, delta=0.7).value == pytest.approx(-(1.25 * a / 4 - 0.8 * a / 2), rel=1e-12)


def test_a_response_without_an_advantage_is_not_masked() -> None:
    """Equal rewards, both at 1/4: A = 0, and weight 1 on what is 0."""
    assert outcome("opsm", by_hand([[0.25], [0.25]], [1, 1])).terms["weight"].tolist() == [[1], [1]]


def test_the_divergence_stays_where_the_response_is_masked_and_has_the_gradient_of_the_divergence() -> None:
    """Wrong at ratio 1/2, the reference where the old policy is: y = log 2, r k3 = (2 − 1 − log 2)/2; slope −r y, so
    the loss falls by log 2 / 2 a unit of lp."""
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    moves(
        "opsm", by_hand([[1.0], [0.5]], [1, 0]), (-a + (1 - np.log(2)) / 2) / 2, [[-a / 2], [-np.log(2) / 4]], beta=1.0
    )

"""Rollout IS by hand."""

import numpy as np
import pytest

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """The sampler is the old policy: ratios 1.1, 1.3 right and 0.9, 0.7 wrong; 1.3 and 0.7 are outside (0.8, 1.2)."""
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    old = [[np.log(0.25)] * 2] * 2
    got = moves(
        "rollout_is",
        by_hand([[1.1, 1.3], [0.9, 0.7]], [1, 0], rollout_logprob=old),
        None,
        [[-1.1 * a / 4, 0], [0.9 * a / 4, 0]],
    )
    value = 1.1 * np.log(1.1 / 4) - 0.9 * np.log(0.9 / 4)
    assert got.value == pytest.approx(-a * value / 4, rel=1e-12)
    assert got.terms["clipped"].tolist() == [[False, True], [False, True]]

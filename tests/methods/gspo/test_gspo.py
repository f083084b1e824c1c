"""GSPO by hand."""

import numpy as np
import pytest

from oracle_support import by_hand, moves, outcome


@pytest.mark.parametrize("name", ["gspo", "gspo_token"])
def test_by_hand(name: str) -> None:
    """A = a, 0, -a with a = 1 / (1 + 1e-6). s = sqrt(1.21 · 1) = 1.1; row 2: s = sqrt(0.5 · 2) = 1.

    Clip 3e-4/4e-4: row 0 is clipped to 1.0004 a, row 2 is worth -a: loss = -0.0004 a / 3, and only row 2 moves.
    Clip 0.2/0.2: row 0 is worth 1.1 a: loss = -0.1 a / 3. ∂s/∂lp = s / |o|.
    """
    a = 1 / (1 + 1e-6)
    sample = by_hand([[1.21, 1.0], [1.3], [0.5, 2.0]], [2, 1, 0])
    tight = outcome(name, sample)
    assert tight.value == pytest.approx(-0.0004 * a / 3, rel=1e-9)
    np.testing.assert_allclose(tight.gradient, np.array([[0, 0], [0, 0], [1, 1]]) * a / 6, rtol=1e-12)
    moves(name, sample, -0.1 * a / 3, np.array([[-1.1, -1.1], [0, 0], [1, 1]]) * a / 6, low=0.2, high=0.2)

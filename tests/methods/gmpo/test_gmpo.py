"""GMPO by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves, outcome


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). e^0.4 = 1.49...

    Row 0: 1.21 stays, e clipped to e^0.4: s = sqrt(1.21 e^0.4) = 1.1 e^0.2. Row 2 (A < 0): 4 stays, 1/4 is held at
    e^-0.4: s = 2 e^-0.2. J = (1.1 e^0.2 - 2 e^-0.2) a / 3; each unclipped token moves by s A / 2.
    """
    a = 1 / (1 + 1e-6)
    up, down = 1.1 * np.exp(0.2), 2 * np.exp(-0.2)
    moves(
        "gmpo",
        by_hand([[1.21, np.e], [1.3], [4, 0.25]], [2, 1, 0]),
        -(up - down) * a / 3,
        np.array([[-up, 0], [0, 0], [down, 0]]) * a / 6,
    )


def test_what_has_no_advantage_is_not_called_clipped() -> None:
    """Rewards 2, 1, 0: e and 1/4 lie outside e^±0.4 on the side of their advantage; that of the middle row has none."""
    seen = outcome("gmpo", by_hand([[1.21, np.e], [np.e], [4, 0.25]], [2, 1, 0]))
    np.testing.assert_array_equal(seen.terms["clipped"], [[0, 1], [0, 0], [0, 1]])

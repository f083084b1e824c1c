"""DAPO by hand."""

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """A = a, 0, -a with a = 1 / (1 + 1e-6), six tokens in one mean.

    1.1 a, 1.5 clipped to 1.28 a; 0; 0.5 clipped to -0.8 a, 20 stopped by the dual clip at -10 a, -2 a.
    Loss = -(1.1 + 1.28 - 0.8 - 10 - 2) a / 6 = 10.42 a / 6.
    """
    a = 1 / (1 + 1e-6)
    moves(
        "dapo",
        by_hand([[1.1, 1.5], [1.3], [0.5, 20.0, 2.0]], [2, 1, 0]),
        10.42,
        [[-1.1, 0, 0], [0, 0, 0], [0, 0, 2]],
        unit=a / 6,
    )

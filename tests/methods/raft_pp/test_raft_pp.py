"""RAFT++ by hand."""

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """Rewards 1, 0.5, -1: ratios of the first two, weighted; 1.5 is clipped at 1.2. Four tokens."""
    moves(
        "raft_pp",
        by_hand([[1.1, 1.5], [0.5], [2]], [1, 0.5, -1]),
        -(2.3 + 0.25),
        [[-1.1, 0], [-0.25, 0], [0, 0]],
        unit=1 / 4,
    )

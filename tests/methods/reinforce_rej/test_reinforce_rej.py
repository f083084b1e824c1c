"""Reinforce-Rej by hand, and what is special about it."""

import dataclasses

import numpy as np

import tokenpo
from oracle_support import by_hand, moves, run
from tokenpo.core.parts import SoftOverlong


def test_by_hand() -> None:
    """Rewards 1, -1 and an all-right pair that is rejected: 1.1, 1.5 clipped at 1.2; -2. Five tokens are counted."""
    moves(
        "reinforce_rej",
        by_hand([[1.1, 1.5], [2], [1], [1]], [1, -1, 1, 1], [0, 0, 1, 1]),
        -(2.3 - 2),
        [[-1.1, 0], [2, 0], [0, 0], [0, 0]],
        unit=1 / 5,
    )


def test_shaping_makes_no_group_mixed() -> None:
    """All right, and all wrong, one of each half too long: nothing to learn, whatever they pay."""
    sample = by_hand([[1, 1, 1], [1], [1, 1, 1], [1]], [1, 1, 0, 0], [0, 0, 1, 1])
    objective = dataclasses.replace(tokenpo.method("reinforce_rej"), shaping=(SoftOverlong(4, 2),))
    assert not run(objective, sample).gradient.any()
    mixed = run(objective, by_hand([[1, 1, 1], [1]], [1, 0]))
    np.testing.assert_allclose(mixed.gradient, [[-0.5 / 4] * 3, [0, 0, 0]], rtol=1e-12)

"""CE-GPPO by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves, outcome


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). Five tokens.

    Row 0: 1.1 as it is; 1.5 is beyond 1.2: worth beta2 · 1.2 and moving by it. Row 2: 0.5 is beyond 0.8: worth
    beta1 · 0.8 = 0.6 and moving by it; 2 is on the harmless side: 2.
    """
    a = 1 / (1 + 1e-6)
    moves(
        "ce_gppo",
        by_hand([[1.1, 1.5], [1.3], [0.5, 2.0]], [2, 1, 0]),
        -(1.1 + 1.2 - 0.6 - 2),
        [[-1.1, -1.2], [0, 0], [0.6, 2]],
        unit=a / 5,
    )


def test_dual_clip_by_hand() -> None:
    """Rewards 1, 0: A = a, -a. Row 1 has r = 2, 5, 0.5 at dual 3: 2 as it is, 5 stays at 3 and doesn't move, 0.5 is
    beyond 0.8 and worth 4 · 0.8 = 3.2 with beta1 4: it too stays at 3. Row 0 has A > 0, where no dual clip is.
    """
    sample = by_hand([[5.0], [2.0, 5.0, 0.5]], [1, 0], p_old=0.1)
    a = 0.5 / (0.5**0.5 + 1e-6)
    got = moves(
        "ce_gppo", sample, -4.8 + 2 + 3 + 3, [[-4.8, 0, 0], [2, 0, 0]], unit=a / 4, beta1=4.0, beta2=4.0, dual=3.0
    )
    np.testing.assert_array_equal(got.terms["clipped"][1], [False, True, True])


def test_a_ratio_on_a_bound_is_inside() -> None:
    """r = 2 with A > 0 and r = 1/2 with A < 0, bounds 1/2 and 2: each counts as it is, not times its beta."""
    sample = by_hand([[2.0], [0.5]], [1, 0], p_old=1.0)
    got = outcome("ce_gppo", sample, low=0.5, high=1.0, beta1=0.75, beta2=0.25)
    a = got.terms["advantage"][0, 0]
    np.testing.assert_allclose(got.gradient, np.array([[-2.0], [0.5]]) * a / 2, rtol=1e-12)


def test_without_advantage_nothing_is_cut_off() -> None:
    sample = by_hand([[5.0], [0.1]], [1, 1])
    assert not outcome("ce_gppo", sample, beta1=0.0, beta2=0.0).terms["clipped"].any()

"""GPG by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves, outcome, ragged


def test_by_hand() -> None:
    """Rewards 3, 1 and a pair of equals: B = 4, M = 2: A = 2, -2, 0, 0. p_old = 1/4, lp = log(r / 4). Five tokens."""
    total = np.log(1 / 2) + np.log(1 / 4) - np.log(1 / 8)
    moves(
        "gpg",
        by_hand([[2, 1.0], [0.5], [1], [1]], [3, 1, 6, 6], [0, 0, 1, 1]),
        -2 * total,
        [[-2, -2], [2, 0], [0, 0], [0, 0]],
        unit=1 / 5,
    )


def test_response_means_by_hand() -> None:
    """The same advantages 2, -2, 0, 0; each of the four responses counts alike, row 0's tokens share its quarter."""
    sample = by_hand([[2, 1.0], [0.5], [1], [1]], [3, 1, 6, 6], [0, 0, 1, 1])
    moves("gpg", sample, None, [[-1, -1], [2, 0], [0, 0], [0, 0]], unit=1 / 4, sequence_mean=True)


def test_silent_groups_do_not_dilute() -> None:
    """B / (B - M) undoes exactly what rows without a lesson take from a mean over rows of one length."""
    sample = ragged(0, equal_lengths=True)
    mixed = np.flatnonzero(np.isin(sample.group, [7, 2, 30, 0]))
    whole, alone = outcome("gpg", sample), outcome("gpg", sample.rows(mixed))
    np.testing.assert_allclose(whole.gradient[mixed], alone.gradient, rtol=1e-12)

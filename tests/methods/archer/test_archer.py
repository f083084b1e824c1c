"""Archer by hand."""

import numpy as np

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6). Six entropies: the 0.8 quantile is the fifth smallest.

    Row 0: only the token of entropy 9 is above 5: it may rise to 1.5; the others to 1.2. Row 1 has one token, which is
    not above itself: 0.7 is held at 0.8. Tokens of low entropy pay 0.1 k3; u = 0.5 at (0, 0): 0.1 (log 2 - 0.5), moved
    by -0.1 (1 - 0.5); the high one at (0, 5) has u = 0.5 too and pays nothing.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    entropy = [[1.0, 2, 3, 4, 5, 9], [7]]
    sample = by_hand([[1.1, 1.3, 1, 1, 1, 1.4], [0.7]], [1, 0], old_entropy=entropy)
    reference = sample.logprob.copy()
    reference[0, [0, 5]] += np.log(0.5)
    total = (1.1 + 1.2 + 3 + 1.4 - 0.8) * a - 0.1 * (np.log(2) - 0.5)
    first = [-1.1 * a + 0.1 * 0.5, 0, -a, -a, -a, -1.4 * a]
    moves("archer", sample.but(ref_logprob=reference), -total, [first, [0] * 6], unit=1 / 7, kl=0.1)

"""KL-Cov by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """One token each, A = a, 0, -a (a = 1 / (1 + 1e-6)), lp = -1, -2, -6 with mean -3: cov = 2a, 0, 3a.

    k = max(1, int(0.006)) = 1: the third token, r = 0.5, pays |log 0.5| and is pushed up by it.
    J = (1.5 a - 0.5 a - log 2) / 3; ∂J/∂lp = 1.5 a, 0, -0.5 a + 1 over 3. No clip at 1.5.
    """
    a = 1 / (1 + 1e-6)
    sample = by_hand([[1.5], [1.0], [0.5]], [2, 1, 0])
    lp = np.array([[-1.0], [-2.0], [-6.0]])
    sample = sample.but(old_logprob=lp - np.log([[1.5], [1.0], [0.5]]), logprob=lp)
    moves("kl_cov", sample, -(a - np.log(2)) / 3, [[-1.5 * a / 3], [0], [(0.5 * a - 1) / 3]])


def test_of_equal_covariances_the_earlier_pay() -> None:
    """Equal rewards: every covariance is 0, and two of the four tokens are to be held.

    J = (0 − |log 2| − |log 2|) / 4; the gradient of the first two is −sign(log 2) / 4 of J.
    """
    sample = by_hand([[2.0, 2.0], [2.0, 2.0]], [1, 1])
    moves("kl_cov", sample, 2 * np.log(2) / 4, [[0.25, 0.25], [0, 0]], fraction=0.5)

"""SENT by hand."""

import numpy as np
import pytest

from oracle_support import by_hand, outcome


def test_by_hand() -> None:
    """One token each, A = a, 0, -a, (a = 1 / (1 + 1e-6)) and one rollout more of A = 0 and the highest entropy.

    int(0.8 · 4) = 3 calm tokens: lp = -1, -2, -6 with mean -3: cov = 2 a, 0, 3 a. The third, r = 0.5, pays 2 |log 0.5|;
    the second, r = 1, would pay half of 0. J = (1.5 a - 0.5 a - 2 log 2) / 4; ∂J/∂lp = 1.5 a, -1/2, -0.5 a + 2 over 4:
    the second token's r is 1.1 here, so that it pays log(1.1) / 2.
    """
    a = 1 / (1 + 1e-6)
    ratio = np.array([[1.5], [1.1], [0.5], [1.0]])
    lp = np.array([[-1.0], [-2.0], [-6.0], [-50.0]])
    sample = by_hand([[1.0]] * 4, [2, 1, 0, 1], [0, 0, 0, 1], entropy=[[1.0], [1], [1], [2]])
    got = outcome("sent", sample.but(old_logprob=lp - np.log(ratio), logprob=lp))
    assert got.value == pytest.approx(-(a - 2 * np.log(2) - np.log(1.1) / 2) / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient[:, 0], [-1.5 * a / 4, 0.125, (0.5 * a - 2) / 4, 0], rtol=1e-12)

"""M2PO on the sampler's log-probabilities by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, outcome


def test_by_hand() -> None:
    """Squares 0.01, 0.09, 0.36 and 0.04: all have mean 0.125, without the largest 0.0467, without 0.09 too 0.025."""
    old = np.log(0.25)
    rollout = [[old + 0.1, old - 0.3, old + 0.6], [old - 0.2]]
    sample = by_hand([[1.0, 1.0, 1.0], [1.0]], [1, 0], rollout_logprob=rollout)
    for threshold, kept in ((0.2, [[1, 1, 1], [1]]), (0.1, [[1, 1, 0], [1]]), (0.04, [[1, 0, 0], [1]])):
        got = outcome("m2po_rollout", sample, threshold=threshold).terms["weight"]
        assert [got[0].tolist(), got[1][:1].tolist()] == kept

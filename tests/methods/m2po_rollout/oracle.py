"""M2PO on the sampler's log-probabilities (AReaL): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, ratio, token_mean

CASES = [{}, {"threshold": 5e-5}, {"threshold": 0.0}, {"threshold": 1e-5, "low": 0.1, "high": 0.4}]


def m2po_rollout(s, *, threshold=0.04, low=0.2, high=0.2):
    # the largest squares are dropped until the mean of the others is below the threshold
    keep = s.mask.copy()
    squares = (s.rollout_logprob - s.old_logprob) ** 2
    while keep.any() and squares[keep].mean() >= threshold:
        keep[np.unravel_index(np.argmax(np.where(keep, squares, -1)), keep.shape)] = False
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return token_mean(s, keep * J, keep * dJ)

"""HA-DW (2601.08521): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, groups, ratio, sequence_mean

CASES = [{}, {"scale": 1.0, "history": 2}, {"anchor": "current", "scale": 1.5, "low": 0.1, "high": 0.4}]


def ha_dw(s, *, past=(), scale=1.3, history=10, anchor="prior", low=0.2, high=0.2):
    """`past`: the mean rewards of the batches before this one, the oldest first."""
    # C = mean of the last `history` batch means, with or without this batch's own; at the very first its own
    y = s.reward[s.mask.any(1)].mean()
    seen = [*past, y] if anchor == "current" or not past else [*past]
    C = np.mean(seen[-history:])

    # A_i <- A_i λ exp(D M), D = -sign(A_i) sign(p^ - C), M = |p^ - C|, p^ the group's mean reward
    A = scale * group_advantage(s)
    for rows in groups(s):
        A[rows] *= np.exp(-np.sign(A[rows]) * (s.reward[rows].mean() - C))
    return sequence_mean(s, *clipped(*ratio(s), A, low, high))

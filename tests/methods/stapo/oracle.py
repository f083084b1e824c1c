"""STAPO (2602.15620): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, group_advantage, loss, nearest_rank, ratio

CASES = crossed(
    [{"prob": 0.05}, {"prob": 0.3, "quantile": 0.5, "low": 0.1}, {"prob": 1.0, "quantile": 1.0, "high": 0.5}, {}],
    policy=("current", "old"),
)


def stapo(s, *, policy="current", prob=0.002, quantile=0.75, low=0.2, high=0.28):
    lp, H = (s.logprob, s.entropy) if policy == "current" else (s.old_logprob, s.old_entropy)

    # spurious: rare tokens of praised responses whose entropy is below the quantile of such tokens
    A = group_advantage(s)
    spurious = s.mask & (A > 0) & (np.exp(lp) < prob)
    if spurious.any():
        spurious &= nearest_rank(H[spurious], quantile) > H

    # mean over the tokens that remain: the spurious leave the denominator too
    keep = s.mask & ~spurious
    return loss(keep / keep.sum(), *clipped(*ratio(s), A, low, high))

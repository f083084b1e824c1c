"""REINFORCE++-baseline (2501.03262): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, ratio, token_mean, whitened

CASES = [{}, {"low": 0.1, "high": 0.4}, {"beta": 0.3}]


def reinforce_pp_baseline(s, *, low=0.2, high=0.2, beta=0.0):
    # R_i - mean_g, whitened over the tokens of the batch
    A = whitened(group_advantage(s, std=False) + np.zeros(s.mask.shape), s.mask)

    # - β k2, k2 = (log u)² / 2 with u = π_ref / π; ∂k2/∂lp = -log u
    J, dJ = clipped(*ratio(s), A, low, high)
    y = s.ref_logprob - s.logprob
    return token_mean(s, J - beta * y**2 / 2, dJ + beta * y)

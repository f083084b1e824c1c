"""GMPO (2507.20673): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, response_mean, sequence_mean

CASES = [{}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 5.0}]


def gmpo(s, *, low=0.4, high=0.4):
    # y_t = sign(A) min(sign(A) x, sign(A) clip(x, -low, high)), x = lp - lp_old: log-ratios clipped only against A
    A, x = group_advantage(s), s.logprob - s.old_logprob
    y = np.where(A > 0, np.minimum(x, high), np.maximum(x, -low))
    dy = np.where(A > 0, x <= high, x >= -low)

    # w_i = exp(mean_t y): the geometric mean of the clipped ratios; |o_i| ∂w_i/∂lp_it = w_i [not clipped]
    w = np.exp(response_mean(s, y))
    return sequence_mean(s, A * w, A * w * dy)

"""GMPO (2507.20673) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def gmpo(mask, reward, group, old_logprob, logprob, *, low=0.4, high=0.4):
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # y_t = sign(A) min(sign(A) x, sign(A) clip(x, -low, high)), x = lp - lp_old: log-ratios clipped only against A
    x = logprob - old_logprob
    y = np.where(A > 0, np.minimum(x, high), np.maximum(x, -low))
    dy = np.where(A > 0, x <= high, x >= -low)

    # s_i = exp(mean_t y): the geometric mean of the clipped ratios, one value A s for the response
    s = np.exp((mask * y).sum(1, keepdims=True) / np.maximum(length, 1))
    J = A * s

    # mean over the responses; ∂s_i/∂lp_it = s_i [not clipped] / |o_i|
    share = mask / (alive.sum() * np.maximum(length, 1))
    return -J[alive].mean(), -share * A * s * dy

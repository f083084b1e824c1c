"""TW-GRPO (2505.24718): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, groups, ratio, token_mean

CASES = [{}, {"alpha": 3.0}, {"alpha": 0.0}, {"alpha": 1.0}, {"low": 0.1, "high": 0.4}]


def tw_grpo(s, *, alpha=1.7, low=0.2, high=0.28):
    # w_t = 1 + (α - 1) (d_t - min d) / (max d - min d + 1e-8) over the positions where a rollout of the group is alive
    w = np.ones(s.mask.shape)
    for rows in groups(s):
        d = s.divergence[rows][s.mask[rows]]
        w[rows] = 1 + (alpha - 1) * (s.divergence[rows] - d.min()) / (np.ptp(d) + 1e-8)

    # w min(r A, clip(r) A), with 1e-4 beside the deviation
    J, dJ = clipped(*ratio(s), group_advantage(s, eps=1e-4), low, high)
    return token_mean(s, w * J, w * dJ)

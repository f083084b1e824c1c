"""NTHR (2505.18830): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, groups, k3, ratio, sequence_mean

CASES = [
    {}, {"beta": 0.0}, {"beta": -2.0}, {"beta": np.inf}, {"beta": -np.inf}, {"eta": 0.0}, {"eta": 0.3, "beta": 0.1},
    {"kl": 0.0}, {"kl": 0.3, "low": 0.1, "high": 0.4},
]  # fmt: skip


def nthr(s, *, beta=1.0, eta=None, low=0.2, high=0.2, kl=1e-4):
    # The wrong rollouts' tokens (R <= mean_g) that help the correct ones, s_jk > τ, keep the part η of A:
    # τ = β min_i sbar_i, sbar_i the mean influence of a correct rollout's tokens; η = 2 |1/2 - p| with p the group's
    # share of correct rollouts
    A = group_advantage(s) + np.zeros(s.mask.shape)
    for rows in groups(s):
        correct = rows[A[rows].max(1) > 0]
        if len(correct):
            tau = beta * min(s.influence[i, s.mask[i]].mean() for i in correct)
            part = 2 * abs(0.5 - len(correct) / len(rows)) if eta is None else eta
            for i in np.setdiff1d(rows, correct):
                A[i, s.influence[i] > tau] *= part

    J, dJ = clipped(*ratio(s), A, low, high)
    k, dk = k3(s)
    return sequence_mean(s, J - kl * k, dJ - kl * dk)

"""EDGE-GRPO (2507.21848): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, ratio, response_mean, sequence_mean

CASES = [{}, {"low": 0.1, "high": 0.4}, {"eps": 1e-4}]


def edge_grpo(s, *, low=0.2, high=0.2, eps=1e-6):
    # A_i <- A_i mean_j Hbar_j / Hbar_i, Hbar the mean entropy of a response's tokens, j over the batch
    Hbar = np.maximum(response_mean(s, s.old_entropy), 1e-8)
    A = group_advantage(s, eps=eps) * Hbar[s.mask.any(1)].mean() / Hbar
    return sequence_mean(s, *clipped(*ratio(s), A, low, high))

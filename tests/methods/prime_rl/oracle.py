"""prime-rl's default loss: loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, token_mean

CASES = [{}, {"low": 0.02, "high": 0.01}, {"kl": 0.5}, {"kl": 0.0, "low": 0.0}]


def prime_rl(s, *, low=0.2, high=0.2, kl=1e-3):
    # keep q A - kl (log q)^2, A_i = R_i - mean_g, q = π / π_rollout
    A, moved = group_advantage(s, std=False), np.exp(s.logprob) - np.exp(s.rollout_logprob)
    keep = np.where(A > 0, moved <= high, moved >= -low)
    x = np.clip(s.logprob - s.rollout_logprob, -20, 20)
    return token_mean(s, keep * np.exp(x) * A - kl * x**2, keep * np.exp(x) * A - 2 * kl * x)

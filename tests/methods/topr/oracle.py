"""TOPR (2503.14286): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, likelihood, sequence_sum

CASES = [{}, {"threshold": 0.0}, {"level": "token"}, {"signal": "advantage"}, {"level": "token", "signal": "advantage"}]


def topr(s, *, level="sequence", signal="outcome", threshold=0.5):
    # A_i = ±1 by the outcome, without a baseline; or R_i - mean_g
    outcome = np.where(s.reward > threshold, 1.0, -1.0)[:, None]
    A = outcome if signal == "outcome" else group_advantage(s, std=False)

    # W = π / π_old of the whole response, a product of ratios, or of the token; its logarithm kept within ±20
    x = s.mask * (s.logprob - s.old_logprob)
    W = np.exp(np.clip(x.sum(1, keepdims=True) if level == "sequence" else x, -20, 20))

    # sg[a] A lp, a = 1 for A >= 0 and min(W, 1) for A < 0: what the policy already shuns is pushed no further
    return sequence_sum(s, *likelihood(s, np.where(A >= 0, 1.0, np.minimum(W, 1)) * A))

"""TOPR (2503.14286) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def topr(mask, reward, group, old_logprob, logprob, *, level="sequence", signal="outcome", threshold=0.5):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = ±1 by the outcome, without a baseline; or R_i - mean_g
    A = np.zeros((len(reward), 1))
    for i in np.flatnonzero(alive):
        if signal == "outcome":
            A[i, 0] = 1.0 if reward[i] > threshold else -1.0
        else:
            peers = reward[alive & (group == group[i])]
            A[i, 0] = reward[i] - peers.mean() if peers.min() < peers.max() else 0.0

    # W = π / π_old of the whole response, a product of ratios, or of the token; its logarithm kept within ±20
    x = mask * (logprob - old_logprob)
    W = np.exp(np.clip(x.sum(1, keepdims=True) if level == "sequence" else x, -20, 20))

    # sg[a] A lp, a = 1 for A >= 0 and min(W, 1) for A < 0: what the policy already shuns is pushed no further
    a = np.where(A >= 0, 1.0, np.minimum(W, 1))
    J = a * A * logprob
    dJ = a * A

    # sum over the tokens of a response, mean over the responses
    share = mask / alive.sum()
    return -(share * J).sum(), -share * dJ

"""VESPO (2602.10693) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def vespo(mask, reward, group, old_logprob, logprob, *, k_pos=2.0, lambda_pos=3.0, k_neg=3.0, lambda_neg=2.0):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # W_i = Π_t r_it, the product over the response: each log-ratio within ±20, their sum within [log 1e-8, 20]
    log_W = (mask * np.clip(logprob - old_logprob, -20, 20)).sum(1, keepdims=True)
    log_W = np.clip(log_W, np.log(1e-8), 20)

    # φ(W) = e^λ W^k e^(-λ W): one at W = 1, largest at W = k / λ, with constants of its own for each sign of A
    k = np.where(A >= 0, k_pos, k_neg)
    rate = np.maximum(np.where(A >= 0, lambda_pos, lambda_neg), 1e-4)
    phi = np.exp(rate + k * log_W - rate * np.exp(log_W))

    # sg[φ(W)] A lp: every token keeps a gradient
    J = phi * A * logprob
    dJ = phi * A

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

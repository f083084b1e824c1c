"""VESPO (2602.10693): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, likelihood, token_mean

CASES = [
    {}, {"k_pos": 0.5, "lambda_pos": 0.1, "k_neg": 1.0, "lambda_neg": 0.3},
    {"k_pos": 0.0, "lambda_pos": 0.0, "k_neg": 1.0, "lambda_neg": 0.0},
]  # fmt: skip


def vespo(s, *, k_pos=2.0, lambda_pos=3.0, k_neg=3.0, lambda_neg=2.0):
    # W_i = Π_t r_it, the product over the response: each log-ratio within ±20, their sum within [log 1e-8, 20]
    log_W = (s.mask * np.clip(s.logprob - s.old_logprob, -20, 20)).sum(1, keepdims=True)
    log_W = np.clip(log_W, np.log(1e-8), 20)

    # φ(W) = e^λ W^k e^(-λ W): one at W = 1, largest at W = k / λ, with constants of its own for each sign of A
    A = group_advantage(s)
    k = np.where(A >= 0, k_pos, k_neg)
    rate = np.maximum(np.where(A >= 0, lambda_pos, lambda_neg), 1e-4)
    phi = np.exp(rate + k * log_W - rate * np.exp(log_W))

    # sg[φ(W)] A lp: every token keeps a gradient
    return token_mean(s, *likelihood(s, phi * A))

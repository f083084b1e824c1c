"""FIPO (2603.19835): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, ratio, token_mean

CASES = [
    {}, {"dual": 10.0, "high": 0.28, "least": 0.8, "safety": 3.0, "low": 0.1},
    {"decay": 1.0, "least": 0.0, "most": 100.0}, {"decay": 0.5},
]  # fmt: skip


def fipo(s, *, decay=32.0, least=1.0, most=1.2, safety=4.0, dual=None, low=0.2, high=0.2):
    A, (r, dr) = group_advantage(s), ratio(s)

    # F_t = d_t + γ F_{t+1}, from the end; γ halves in `decay` tokens
    F = np.where(s.mask & (r <= (np.inf if dual is None else dual)), np.log(r), 0)
    for t in reversed(range(F.shape[1] - 1)):
        F[:, t] += 0.5 ** (1 / decay) * F[:, t + 1]
    f = np.clip(np.exp(F), least, most)
    f = np.where((A < 0) & (r > safety), np.clip(f, 0.8, 1.0), f)

    # sg[f] times the clipped surrogate
    J, dJ = clipped(r, dr, A, low, high, dual)
    return token_mean(s, f * J, f * dJ)

"""HMPO (2606.01934): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, groups, k3, ratio, token_mean

CASES = [
    {}, {"additive": True, "threshold": 0.5}, {"scale": 0.7, "shift": 0.1, "cap": 0.6, "beta": 0.3},
    {"by_score": True}, {"by_score": True, "additive": True, "threshold": -0.5},
    {"shift": -0.5, "beta": 0.0, "dual": None, "low": 0.1, "high": 0.4},
]  # fmt: skip


def hmpo(
    s, *, low=0.2, high=0.28, dual=10.0, scale=1.0, shift=0.8, cap=1.0, additive=False, threshold=0.0, by_score=False,
    beta=1e-3,
):  # fmt: skip
    # R'_i = f(|o_i|) c_i with c_i = 1[R_i > threshold] and b the median length of the group's correct rollouts:
    # f(n) = clip(scale cos(π n / (2 b)) + shift, 0, cap) up to n = b, 0 beyond it and where nobody is correct
    length, shaped = s.mask.sum(1), np.zeros(len(s.reward))
    for rows in groups(s):
        correct = rows[s.reward[rows] > threshold]
        for i in correct:
            b, n = np.median(length[correct]), length[i]
            f = np.clip(scale * np.cos(np.pi * n / (2 * b)) + shift, 0.0, cap) if n <= b else 0.0
            shaped[i] = (1 + f if additive else f) * (s.reward[i] if by_score else 1)  # the authors' code: × score

    J, dJ = clipped(*ratio(s), group_advantage(s, shaped), low, high, dual)
    k, dk = k3(s)
    return token_mean(s, J - beta * k, dJ - beta * dk)

"""Advantage Reweighting (2505.12929): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, k3, ratio, token_mean

CASES = [
    {}, {"a": 0.3, "beta": 0.0}, {"a": 1.0, "beta": 0.5, "dual": 3.0}, {"low": 0.1, "high": 0.4, "a": 0.0},
    {"beta": 0.3, "bounded_kl": True},
]  # fmt: skip


def adv_reweight(s, *, a=0.2, low=0.2, high=0.24, dual=10.0, beta=1e-3, bounded_kl=False):
    # A <- w A with w = a p_old + 1 - a: unlikely tokens weigh less
    A = (a * np.exp(s.old_logprob) + 1 - a) * group_advantage(s)
    J, dJ = clipped(*ratio(s), A, low, high, dual)

    # - β k3; the authors' code bounds log u to ±5, then k3 to 10: flat where either binds
    k, dk = k3(s)
    if bounded_kl:
        y = s.ref_logprob - s.logprob
        near = np.clip(y, -5, 5)
        k = np.exp(near) - near - 1
        k, dk = np.minimum(k, 10), np.where((np.abs(y) <= 5) & (k <= 10), dk, 0)
    return token_mean(s, J - beta * k, dJ - beta * dk)

"""Lopti (2505.12929): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, k3, ratio, token_mean

CASES = [
    {}, {"a": 0.3, "eta": 0.5}, {"high_first": True, "beta": 0.3}, {"dual": 3.0, "beta": 0.0, "low": 0.1, "high": 0.5},
    {"beta": 0.3, "bounded_kl": True},
]  # fmt: skip


def lopti(
    s, *, part=None, eta=0.4, a=0.0, high_first=False, low=0.2, high=0.24, dual=10.0, beta=1e-3, bounded_kl=False
):  # fmt: skip
    """`part`: 0 or 1 for the loss of the first or second pass, None for that of all tokens."""
    # A <- w A with w = a p_old + 1 - a: unlikely tokens weigh less
    p_old = np.exp(s.old_logprob)
    J, dJ = clipped(*ratio(s), (a * p_old + 1 - a) * group_advantage(s), low, high, dual)

    # - β k3; the authors' code bounds log u to ±5, then k3 to 10: flat where either binds
    k, dk = k3(s)
    if bounded_kl:
        y = s.ref_logprob - s.logprob
        near = np.clip(y, -5, 5)
        k = np.exp(near) - near - 1
        k, dk = np.minimum(k, 10), np.where((np.abs(y) <= 5) & (k <= 10), dk, 0)

    # the tokens of the pass: the unlikely ones p_old < η first, then the others (or the other way round)
    unlikely = p_old < eta
    on = {None: s.mask, 0: unlikely ^ high_first, 1: ~unlikely ^ high_first}[part]
    return token_mean(s, on * (J - beta * k), on * (dJ - beta * dk))

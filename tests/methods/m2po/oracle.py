"""M2PO (2510.01161): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, ratio, token_mean

CASES = [{}, {"budget": 0.3, "low": 0.05, "high": 0.05}, {"budget": 1e-3, "low": 0.0, "high": 0.0}, {"budget": 9.0}]


def m2po(s, *, budget=0.04, low=0.3, high=0.5):
    # squares of the tokens that are pushed on, from the smallest; the last that the budget holds if all after it are
    # cut to it is the bound
    A, (r, dr) = group_advantage(s), ratio(s)
    x = np.log(r)
    squares = sorted((x**2)[s.mask & (x * A > 0)])
    n, tau = len(squares), 20.0
    if n and sum(squares) / n > budget:
        tau = 0.0
        for k in range(n):
            if (sum(squares[: k + 1]) + (n - k - 1) * squares[k]) / n >= budget:
                break
            tau = np.sqrt(squares[k] - 1e-12)

    # bounds e^∓τ, at least low and high
    return token_mean(s, *clipped(r, dr, A, max(1 - np.exp(-tau), low), max(np.exp(tau) - 1, high)))

"""DRO (2405.19107): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, token_mean

CASES = [{}, {"beta": 1.0}, {"beta": 0.0}]


def dro(s, *, beta=0.05):
    # A lp - beta/2 (lp - lp_old)^2
    A, x = group_advantage(s), np.clip(s.logprob - s.old_logprob, -20, 20)
    return token_mean(s, A * s.logprob - beta / 2 * x**2, A - beta * x)

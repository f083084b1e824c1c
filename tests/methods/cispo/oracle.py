"""CISPO (2506.13585): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, likelihood, ratio, token_mean

CASES = [{}, {"low": 0.2, "high": 0.2}, {"high": 2.0, "absolute": True}]


def cispo(s, *, low=1.0, high=0.28, absolute=False):
    # sg[clip(r, 1 - low, 1 + high)] A lp: every token keeps a gradient, of bounded weight
    w = np.clip(ratio(s)[0], 1 - low, high if absolute else 1 + high)
    return token_mean(s, *likelihood(s, w * group_advantage(s)))

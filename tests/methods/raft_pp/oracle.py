"""RAFT++ (2504.11343): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, ratio, token_mean

CASES = [{}, {"low": 0.1, "high": 0.4}]


def raft_pp(s, *, low=0.2, high=0.2):
    # A = max(R, 0): wrong responses teach nothing
    return token_mean(s, *clipped(*ratio(s), np.maximum(s.reward, 0)[:, None], low, high))

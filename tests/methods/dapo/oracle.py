"""DAPO (2503.14476): loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, group_advantage, ratio, token_mean

CASES = [{}, {"low": 0.1, "high": 0.4}, {"dual": 3.0}, {"low": 0.3, "dual": 1.5}]


def dapo(s, *, low=0.2, high=0.28, dual=10.0):
    return token_mean(s, *clipped(*ratio(s), group_advantage(s), low, high, dual))

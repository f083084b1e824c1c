"""GRPO (2402.03300): loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, group_advantage, k3, ratio, sequence_mean

CASES = [{}, {"low": 0.1, "high": 0.4}, {"beta": 0.3}, {"beta": 0.05, "low": 0.3, "high": 0.3}]


def grpo(s, *, low=0.2, high=0.2, beta=0.0):
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    k, dk = k3(s)
    return sequence_mean(s, J - beta * k, dJ - beta * dk)

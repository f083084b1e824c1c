"""LUSPO (2602.05261): loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, group_advantage, sequence_ratio, sequence_sum

CASES = [{}, {"low": 3e-4, "high": 4e-4}, {"low": 0.0, "high": 0.1}]


def luspo(s, *, low=0.2, high=0.2):
    # |o_i| min(s A, clip(s) A): as a sum over tokens; with ∂s_i/∂lp_it = s_i / |o_i| the length leaves the gradient
    return sequence_sum(s, *clipped(*sequence_ratio(s), group_advantage(s), low, high))

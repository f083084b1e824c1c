"""GSPO (2507.18071): loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, group_advantage, sequence_mean, sequence_ratio

CASES = [{}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 1e-4}]


def gspo(s, *, low=3e-4, high=4e-4):
    # min(s A, clip(s, 1 - low, 1 + high) A), s_i = exp(mean_t(lp - lp_old)): one ratio for the response
    return sequence_mean(s, *clipped(*sequence_ratio(s), group_advantage(s), low, high))

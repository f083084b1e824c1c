"""TEPO, first version (2510.09369 v1): loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, group_advantage, sequence_ratio, token_mean

CASES = [{}, {"low": 0.01, "high": 0.02}, {"low": 3e-4, "high": 4e-4}]


def tepo_v1(s, *, low=0.2, high=0.2):
    # s_it = sg[s_i] exp(lp - sg[lp]): worth s_i = exp(mean_t(lp - lp_old)), and ∂s_it/∂lp_it = s_i
    return token_mean(s, *clipped(*sequence_ratio(s), group_advantage(s), low, high))

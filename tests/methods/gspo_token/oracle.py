"""GSPO-token (2507.18071): loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, group_advantage, sequence_mean, sequence_ratio

CASES = [{}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 1e-4}]


def gspo_token(s, *, low=3e-4, high=4e-4):
    # s_it = sg[s_i] exp(lp - sg[lp]): worth s_i = exp(mean_t(lp - lp_old)), and ∂s_it/∂lp_it = s_i
    w, dw = sequence_ratio(s)
    return sequence_mean(s, *clipped(w, dw, group_advantage(s), low, high))

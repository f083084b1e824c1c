"""Clip-Cov (2505.22617): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, ratio, token_mean


def clip_cov(s, *, selected, low=1.0, high=1.0):
    """`selected` [N, T] bool: the tokens that the random draw took (its law is `eligible`, below)."""
    # the selected tokens lose their surrogate, the denominator keeps them
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return token_mean(s, ~selected * J, ~selected * dJ)


def eligible(s, *, low=1.0, high=1.0, cov_low=1.0, cov_high=5.0):
    """The tokens that the draw takes max(int(fraction · n), 1) of: not clipped, and cov_low < cov < cov_high."""
    A, r = group_advantage(s) + np.zeros(s.mask.shape), np.exp(s.logprob - s.old_logprob)
    cov = (A - A[s.mask].mean()) * (s.logprob - s.logprob[s.mask].mean())
    clips = np.clip(r, 1 - low, 1 + high) * A < r * A
    return s.mask & ~clips & (cov_low < cov) & (cov < cov_high)

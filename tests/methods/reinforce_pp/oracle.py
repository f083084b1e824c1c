"""REINFORCE++ (2501.03262): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, ratio, token_mean, whitened

CASES = [{}, {"low": 0.1, "high": 0.4}, {"beta": 0.3}]


def reinforce_pp(s, *, low=0.2, high=0.2, beta=0.0):
    # the return at t: the response's reward - β Σ_{s >= t} (lp_old - lp_ref)_s, whitened over the tokens of the batch
    k1 = np.where(s.mask, s.old_logprob - s.ref_logprob, 0)
    A = whitened(s.reward[:, None] - beta * k1[:, ::-1].cumsum(1)[:, ::-1], s.mask)
    return token_mean(s, *clipped(*ratio(s), A, low, high))

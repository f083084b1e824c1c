"""DPPO with binary total variation (2602.04879): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import crossed, group_advantage, likelihood, ratio, token_mean

CASES = crossed([{}, {"threshold": 0.02}, {"cap": 1.05}], anchor=("rollout", "old"))


def dppo_tv(s, *, anchor="rollout", threshold=0.15, cap=20.0):
    # the trust region is about the probabilities p now and q of the policy that sampled, not their ratio
    before = s.rollout_logprob if anchor == "rollout" else s.old_logprob
    A, p, q = group_advantage(s), np.exp(s.logprob), np.exp(before)

    # p may rise by the threshold for A > 0, fall by it for A <= 0
    inside = np.where(A > 0, p - q <= threshold, p - q >= -threshold)

    # sg[min(r, cap)] A lp inside, nothing outside; the denominator keeps every token
    w = inside * np.minimum(ratio(s, before)[0], cap)
    return token_mean(s, *likelihood(s, w * A))

"""DPPO with binary KL (2602.04879): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import crossed, group_advantage, likelihood, ratio, token_mean

CASES = crossed([{}, {"threshold": 0.001}, {"cap": 1.05}, {"cap": 1.0}], anchor=("rollout", "old"))


def dppo_kl(s, *, anchor="rollout", threshold=0.05, cap=20.0):
    # the trust region is about the probabilities p now and q of the policy that sampled, not their ratio
    before = s.rollout_logprob if anchor == "rollout" else s.old_logprob
    A, p, q = group_advantage(s), np.exp(s.logprob), np.exp(before)

    # KL(Bernoulli(q) | Bernoulli(p)) within the threshold, or p on the harmless side of q
    kl = q * (before - s.logprob) + (1 - q) * np.log((1 - q + 1e-8) / (1 - p + 1e-8))
    inside = (kl <= threshold) | np.where(A > 0, p <= q, p >= q)

    # sg[min(r, cap)] A lp inside, nothing outside; the denominator keeps every token
    w = inside * np.minimum(ratio(s, before)[0], cap)
    return token_mean(s, *likelihood(s, w * A))

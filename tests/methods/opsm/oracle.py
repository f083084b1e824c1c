"""Off-policy sequence masking (2512.02556): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, ratio, response_mean, sequence_mean

CASES = [
    {},
    {"delta": 0.05},
    {"delta": 0.01, "anchor": "rollout", "low": 0.1, "high": 0.4},
    {"delta": 0.05, "beta": 0.3},
]


def opsm(s, *, delta=0.5, anchor="old", low=0.2, high=0.2, beta=0.0):
    # keep_i = 0 where A_i < 0 and the response was likelier before by more than delta nats a token
    A, before = group_advantage(s), s.old_logprob if anchor == "old" else s.rollout_logprob
    far = response_mean(s, np.clip(before - s.logprob, -20, 20)) > delta
    keep = ~((A < 0) & far)

    # - beta r k3(y), y = lp_ref - lp: the derivative of r k3 is r (e^y - 1 - y) + r (1 - e^y) = -r y
    (r, dr), y = ratio(s), np.clip(s.ref_logprob - s.logprob, -20, 20)
    J, dJ = clipped(r, dr, A, low, high)
    return sequence_mean(s, keep * J - beta * r * (np.exp(y) - 1 - y), keep * dJ + beta * r * y)

"""ARM (ProGRPO, 2602.05281): loss and hand-derived gradient, NumPy float64."""

from math import ceil

import numpy as np

from oracle_support.prelude import clipped, group_advantage, groups, ratio, token_mean

CASES = [
    {}, {"alpha": 2.0}, {"alpha": -0.5}, {"alpha": 0.0}, {"fraction": 1.0}, {"fraction": 0.01, "alpha": 1.0},
    {"only_correct": True, "alpha": 1.0}, {"low": 0.1, "high": 0.4},
]  # fmt: skip


def arm(s, *, alpha=0.1, fraction=0.2, only_correct=False, low=0.2, high=0.28):
    # A_i <- A_i + α (c(q) - c(o_i)) in groups whose rewards differ: c(q) = exp(mean log-probability of the prompt's
    # tokens), c(o) that of the response's least likely `fraction`
    A = group_advantage(s)
    for rows in groups(s):
        R = s.reward[rows]
        for i in rows:
            if R.min() < R.max() and (not only_correct or s.reward[i] > R.mean()):
                ranked = np.sort(s.old_logprob[i, s.mask[i]])
                least = ranked[: max(1, ceil(fraction * len(ranked)))]
                A[i, 0] += alpha * (np.exp(s.prompt_logprob[i]) - np.exp(least.mean()))
    return token_mean(s, *clipped(*ratio(s), A, low, high))

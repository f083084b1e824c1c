"""EB-CISPO: loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import groups, likelihood, ratio, token_mean

CASES = [{}, {"high": 0.28}, {"low": 0.1, "high": 0.4}]


def eb_cispo(s, *, high=2.0, low=1.0):
    alive = s.mask.any(1)
    R = [s.reward[rows] for rows in groups(s)]
    N, K = alive.sum(), len(R)

    # variance within groups over variance between them, unbiased
    within = sum(((x - x.mean()) ** 2).sum() for x in R) / max(1, N - K)
    means = np.array([x.mean() for x in R])
    between = (means.var(ddof=1) if K > 1 else 0) - within * np.mean([1 / len(x) for x in R])

    # V_i from the group's others and from the other groups, in the proportion n - 1 : within / between
    A = np.zeros((len(s.reward), 1))
    for i in np.flatnonzero(alive):
        mates, others = alive & (s.group == s.group[i]), alive & (s.group != s.group[i])
        mates[i] = False
        n, V = mates.sum(), s.reward[i]
        if others.any() and (between <= 0 or n == 0):
            V = s.reward[others].mean()
        elif others.any():
            kappa = within / between
            V = (n * s.reward[mates].mean() + kappa * s.reward[others].mean()) / (n + kappa)
        elif n:
            V = s.reward[mates].mean()
        A[i, 0] = s.reward[i] - V
    spread = s.reward[alive].std(ddof=1) if N > 1 else 0
    A = A / (spread + 1e-6) if np.ptp(s.reward[alive]) > 0 else 0 * A

    # sg[clip(r)] A lp
    return token_mean(s, *likelihood(s, np.clip(ratio(s)[0], 1 - low, 1 + high) * A))

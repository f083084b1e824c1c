"""EB-CISPO as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def eb_cispo(mask, reward, group, old_logprob, logprob, *, high=2.0, low=1.0):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere
    ids = np.unique(group[alive])
    R = {g: reward[alive & (group == g)] for g in ids}
    N, K = alive.sum(), len(ids)

    # variance within groups over variance between them, unbiased
    within = sum(((R[g] - R[g].mean()) ** 2).sum() for g in ids) / max(1, N - K)
    means = np.array([R[g].mean() for g in ids])
    between = (means.var(ddof=1) if K > 1 else 0) - within * np.mean([1 / len(R[g]) for g in ids])

    # V_i from the group's others and from the other groups, in the proportion n - 1 : within / between
    A = np.zeros((len(reward), 1))
    for i in np.flatnonzero(alive):
        mates = alive & (group == group[i])
        mates[i] = False
        others = alive & (group != group[i])
        n, V = mates.sum(), 0
        if others.any() and (between <= 0 or n == 0):
            V = reward[others].mean()
        elif others.any():
            kappa = within / between
            V = (n * reward[mates].mean() + kappa * reward[others].mean()) / (n + kappa)
        elif n:
            V = reward[mates].mean()
        else:
            V = reward[i]
        A[i, 0] = reward[i] - V
    spread = reward[alive].std(ddof=1) if N > 1 else 0
    A = A / (spread + 1e-6) if np.ptp(reward[alive]) > 0 else 0 * A

    # sg[clip(r)] A lp, r = exp(lp - lp_old) with the exponent kept within ±20
    weight = np.clip(np.exp(np.clip(logprob - old_logprob, -20, 20)), 1 - low, 1 + high)
    share = mask / mask.sum()
    return -(share * weight * A * np.where(mask, logprob, 0)).sum(), -share * weight * A

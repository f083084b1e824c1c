"""GDPO (2601.05242): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, k3, ratio, token_mean

CASES = crossed(
    [{}, {"weights": (1.0, 0.5, -2.0)}, {"beta": 0.1, "low": 0.1, "high": 0.4}], form=("trl", "verl", "nemo_rl")
)


def gdpo(s, *, form="trl", weights=(), beta=0.0, low=0.2, high=0.2):
    given = ~np.isnan(s.rewards)
    alive = s.mask.any(1) & given.any(1)  # a rollout without response tokens or rewards counts nowhere
    eps = 1e-4 if form == "trl" else 1e-6

    # u_i = Σ_k w_k (R_ik - mean) / (std + eps), among the rollouts of the group that have the reward
    u = np.zeros(len(s.group))
    for k, w in enumerate(weights or [1.0] * s.rewards.shape[1]):
        for g in np.unique(s.group[alive]):
            rows = np.flatnonzero(alive & (s.group == g) & given[:, k])
            R = s.rewards[rows, k]
            for i in range(len(R) if len(R) > 1 and R.min() < R.max() else 0):
                mean, std = R.mean(), R.std(ddof=1) + eps
                if form == "nemo_rl":  # of the others, and not divided where they are all equal
                    others = np.delete(R, i)
                    mean, std = others.mean(), others.std(ddof=1) + eps if others.min() < others.max() else 1
                u[rows[i]] += w * (R[i] - mean) / std

    # over the batch: responses, or (verl) tokens
    count = s.mask.sum(1)[alive] if form == "verl" else np.ones(alive.sum())
    mean = np.average(u[alive], weights=count)
    var = (count * (u[alive] - mean) ** 2).sum() / (count.sum() - 1)
    A = np.zeros((len(s.group), 1))
    A[alive, 0] = (u[alive] - mean) / {
        "trl": np.sqrt(var) + 1e-4, "verl": np.sqrt(var + 1e-8), "nemo_rl": np.sqrt(var)
    }[form]  # fmt: skip

    J, dJ = clipped(*ratio(s), A, low, high)
    k, dk = k3(s)
    return token_mean(s, J - beta * k, dJ - beta * dk)

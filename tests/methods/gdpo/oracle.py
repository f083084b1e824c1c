"""GDPO (2601.05242) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def gdpo(mask, group, rewards, old_logprob, logprob, ref_logprob, *, form="trl", weights=(), beta=0.0):
    alive = mask.any(1) & ~np.isnan(rewards).all(1)  # a rollout without response tokens or rewards counts nowhere
    w = weights or [1.0] * rewards.shape[1]

    # u_i = Σ_k w_k (R_ik - mean) / (std + eps), among the rollouts of the group that have the reward
    u = np.zeros(len(group))
    for k in range(rewards.shape[1]):
        for g in np.unique(group[alive]):
            rows = np.flatnonzero(alive & (group == g) & ~np.isnan(rewards[:, k]))
            R = rewards[rows, k]
            if len(R) < 2 or R.min() == R.max():
                continue
            for i, x in zip(rows, R, strict=True):
                if form == "nemo_rl":  # of the others, and not divided where they are all equal
                    others = np.delete(R, np.flatnonzero(rows == i)[0])
                    std = others.std(ddof=1) if others.min() < others.max() else 1 - 1e-6
                    u[i] += w[k] * (x - others.mean()) / (std + 1e-6)
                else:
                    u[i] += w[k] * (x - R.mean()) / (R.std(ddof=1) + (1e-4 if form == "trl" else 1e-6))

    # over the batch: responses, or (verl) tokens
    A = np.zeros((len(group), 1))
    if form == "verl":
        length = mask.sum(1) * alive
        mean = (length * u).sum() / length.sum()
        var = (length * (u - mean) ** 2).sum() / (length.sum() - 1)
        A[alive, 0] = (u[alive] - mean) / np.sqrt(var + 1e-8)
    else:
        A[alive, 0] = (u[alive] - u[alive].mean()) / (u[alive].std(ddof=1) + (1e-4 if form == "trl" else 0.0))

    # min(r A, clip(r, 0.8, 1.2) A)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)
    J = np.minimum(r * A, np.clip(r, 0.8, 1.2) * A)
    dJ = np.where(A > 0, r <= 1.2, r >= 0.8) * A * dr

    # beta k3(π_ref/π) = beta (e^y - 1 - y), y = lp_ref - lp
    y = np.clip(ref_logprob - logprob, -20, 20)
    penalty, dpenalty = beta * (np.exp(y) - 1 - y), beta * (1 - np.exp(y))

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * (J - penalty)).sum(), -share * (dJ - dpenalty)

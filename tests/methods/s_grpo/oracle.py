"""S-GRPO (2504.20834) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def s_grpo(mask, reward, group, old_logprob, logprob, selected, *, low=0.2, high=0.2):
    """`selected` [N, T] bool: the tokens that the random draw kept (its law is `kept`, below)."""
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over the kept tokens of a response, then over the responses; one that kept none counts with 0
    share = selected / (alive.sum() * np.maximum(selected.sum(1, keepdims=True), 1))
    return -(share * J).sum(), -share * dJ


def kept(mask, uniform, *, fraction=0.5, always=0):
    """Each token with probability `fraction`; `uniform` [n] holds the draws of the true tokens, row after row."""
    u = np.ones(mask.shape)
    u[mask] = uniform
    return mask & ((u < fraction) | (mask.cumsum(1) <= always))

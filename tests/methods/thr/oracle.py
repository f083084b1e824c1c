"""THR (2510.03669) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def thr(mask, reward, group, old_logprob, logprob, influence, *, p=0.1, masked=True, low=0.2, high=0.2):
    """`masked`: the method's option `mask`, whose name the response mask has here."""
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal.
    # A_it <- A_i 1[|THR| > τ] (1 + p sign THR), THR = +s on the tokens of the correct rollouts (R > mean_g), else -s;
    # τ = min_i sbar_i, sbar_i the mean influence s of a correct rollout's tokens
    A = np.zeros(mask.shape)
    for g in np.unique(group[alive]):
        rows = np.flatnonzero(alive & (group == g))
        R = reward[rows]
        if R.min() == R.max():
            continue
        correct = [i for i in rows if reward[i] > R.mean()]
        tau = min(influence[i, mask[i]].mean() for i in correct)
        for i in rows:
            THR = influence[i] if i in correct else -influence[i]
            A[i] = (reward[i] - R.mean()) / (R.std(ddof=1) + 1e-6) * (1 + p * np.sign(THR))
            if masked:
                A[i, np.abs(THR) <= tau] = 0

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over the tokens of a response, then over the responses
    share = mask / (alive.sum() * np.maximum(length, 1))
    return -(share * J).sum(), -share * dJ

"""HMPO (2606.01934) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def hmpo(
    mask, reward, group, old_logprob, logprob, ref_logprob=None,
    *, low=0.2, high=0.28, dual=10.0, scale=1.0, shift=0.8, cap=1.0, additive=False, threshold=0.0,
    by_score=False, beta=1e-3,
):  # fmt: skip
    length = mask.sum(1)  # |o_i|
    alive = length > 0  # a rollout without response tokens counts nowhere
    correct = alive & (reward > threshold)

    # R'_i = f(|o_i|) c_i with c_i = 1[R_i > threshold] and b the median length of the group's correct rollouts:
    # f(n) = clip(scale cos(π n / (2 b)) + shift, 0, cap) up to n = b, 0 beyond it and where nobody is correct
    shaped = np.zeros(len(reward))
    for i in np.flatnonzero(correct):
        b = np.median(length[correct & (group == group[i])])
        n = length[i]
        f = min(max(scale * np.cos(np.pi * n / (2 * b)) + shift, 0.0), cap) if n <= b else 0.0
        shaped[i] = (1 + f if additive else f) * (reward[i] if by_score else 1)  # the authors' code: times the score

    # A_i = (R'_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's shaped rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = shaped[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # dual clip: for A < 0 the objective is never below dual · A
    if dual is not None:
        floor = (A < 0) & (r > dual)
        J = np.where(floor, dual * A, J)
        dJ = np.where(floor, 0, dJ)

    # - β k3, k3 = u - log u - 1 with u = π_ref / π; ∂k3/∂lp = 1 - u
    if beta:
        u = np.exp(ref_logprob - logprob)
        J = J - beta * (u - np.log(u) - 1)
        dJ = dJ - beta * (1 - u)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

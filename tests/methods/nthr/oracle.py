"""NTHR (2505.18830) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def nthr(
    mask, reward, group, old_logprob, logprob, influence, ref_logprob=None,
    *, beta=1.0, eta=None, low=0.2, high=0.2, kl=1e-4,
):  # fmt: skip
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal.
    # The wrong rollouts' tokens (R <= mean_g) that help the correct ones, s_jk > τ, keep the part η of it:
    # τ = β min_i sbar_i, sbar_i the mean influence of a correct rollout's tokens; η = 2 |1/2 - p| with p the group's
    # share of correct rollouts
    A = np.zeros(mask.shape)
    for g in np.unique(group[alive]):
        rows = np.flatnonzero(alive & (group == g))
        R = reward[rows]
        if R.min() == R.max():
            continue
        correct = [i for i in rows if reward[i] > R.mean()]
        tau = beta * min(influence[i, mask[i]].mean() for i in correct)
        part = 2 * abs(0.5 - len(correct) / len(rows)) if eta is None else eta
        for i in rows:
            A[i] = (reward[i] - R.mean()) / (R.std(ddof=1) + 1e-6)
            if i not in correct:
                A[i, influence[i] > tau] *= part

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # - kl k3, k3 = u - log u - 1 with u = π_ref / π; ∂k3/∂lp = 1 - u
    if kl:
        u = np.exp(ref_logprob - logprob)
        J = J - kl * (u - np.log(u) - 1)
        dJ = dJ - kl * (1 - u)

    # mean over the tokens of a response, then over the responses
    share = mask / (alive.sum() * np.maximum(length, 1))
    return -(share * J).sum(), -share * dJ

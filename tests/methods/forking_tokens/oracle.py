"""Forking tokens (2506.01939) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def forking_tokens(mask, reward, group, old_logprob, logprob, scored_entropy, ref_logprob=None,
    *, fraction=0.2, low=0.2, high=0.28, dual=None, beta=0.0, denominator="all",
):  # fmt: skip
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

    # the authors' code: A < 0: max(J, dual A), flat where that binds
    if dual is not None:
        cut = (A < 0) & (dual * A > J)
        J = np.where(cut, dual * A, J)
        dJ = np.where(cut, 0, dJ)

    # policy gradient only on the tokens whose entropy reaches the batch's quantile (nearest rank)
    ranked = np.sort(scored_entropy[mask])
    forking = scored_entropy >= ranked[round((1 - fraction) * (len(ranked) - 1))]
    J = J * forking
    dJ = dJ * forking

    # the authors' code: divided by the forking tokens, not by all
    if denominator == "kept":
        J = J * mask.sum() / (forking & mask).sum()
        dJ = dJ * mask.sum() / (forking & mask).sum()

    # - β k3, k3 = u - log u - 1 with u = π_ref / π; ∂k3/∂lp = 1 - u
    if beta:
        u = np.exp(ref_logprob - logprob)
        J = J - beta * (u - np.log(u) - 1)
        dJ = dJ - beta * (1 - u)

    # mean over all tokens of the batch, forking or not
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

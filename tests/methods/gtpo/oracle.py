"""GTPO (2508.04349 v6) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def gtpo(
    mask, reward, group, old_logprob, logprob, old_entropy,
    *, a1=1.0, a2=0.1, normalise="with_zeros", scope="group", entropy_clamp=None, low=0.2, high=0.28, threshold=0.0,
):  # fmt: skip
    H = np.maximum(old_entropy, 1e-8)
    if entropy_clamp is not None:
        H = np.clip(H, *entropy_clamp)

    # only groups with both outcomes speak; with scope "batch" the entropies of all of them are compared together
    alive = mask.any(1)  # a rollout without response tokens counts nowhere
    right, wrong = alive & (reward > threshold), alive & (reward <= threshold)
    mixed = np.isin(group, group[right]) & np.isin(group, group[wrong]) & alive
    units = [mixed & (group == g) for g in np.unique(group[mixed])] if scope == "group" else [mixed]

    # r~+ of the tokens of O+, r~- of those of O-
    rplus, rminus = np.zeros(mask.shape), np.zeros(mask.shape)
    for unit in units:
        plus, minus = mask & (unit & right)[:, None], mask & (unit & wrong)[:, None]

        # r~+ = a1 + a2 d_t H_it / Σ_k H_kt,  r~- = -a1 - a2 h_t (1/H_jt) / Σ_k (1/H_kt), sums over the set alive at t
        for t in range(mask.shape[1]):
            p, m = plus[:, t], minus[:, t]
            rplus[p, t] = a1 + a2 * p.sum() * H[p, t] / H[p, t].sum()
            rminus[m, t] = -a1 - a2 * m.sum() * (1 / H[m, t]) / (1 / H[m, t]).sum()

    # each set's shaped rewards less the mean, over the std (n - 1), of its collection in the group
    A = np.zeros(mask.shape)
    for g in np.unique(group[mixed]):
        plus, minus = (mask & (mixed & side & (group == g))[:, None] for side in (right, wrong))
        for own, shaped in ((plus, rplus), (minus, rminus)):
            collection = {
                "with_zeros": shaped[plus | minus],
                "own_set": shaped[own],
                "pooled": (rplus + rminus)[plus | minus],
            }[normalise]
            if np.ptp(collection) > 0:
                A[own] = (shaped[own] - collection.mean()) / (collection.std(ddof=1) + 1e-6)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

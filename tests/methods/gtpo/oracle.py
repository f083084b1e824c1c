"""GTPO (2508.04349 v6): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, groups, ratio, token_mean

CASES = crossed(
    [{}, {"entropy_clamp": (0.2, 0.28)}, {"a1": 0.7, "a2": 0.5, "low": 0.1, "high": 0.4, "threshold": 0.3}],
    normalise=("with_zeros", "own_set", "pooled"),
    scope=("group", "batch"),
)


def gtpo(
    s, *, a1=1.0, a2=0.1, normalise="with_zeros", scope="group", entropy_clamp=None, low=0.2, high=0.28, threshold=0.0
):  # fmt: skip
    H = np.clip(np.maximum(s.old_entropy, 1e-8), *(entropy_clamp or (0, np.inf)))

    # only groups with both outcomes speak; with scope "batch" the entropies of all of them are compared together
    right = s.reward > threshold
    mixed = [rows for rows in groups(s) if 0 < right[rows].sum() < len(rows)]
    units = mixed if scope == "group" or not mixed else [np.concatenate(mixed)]

    # r~+ of the tokens of O+, r~- of those of O-:
    # r~+ = a1 + a2 d_t H_it / Σ_k H_kt,  r~- = -a1 - a2 h_t (1/H_jt) / Σ_k (1/H_kt), sums over the set alive at t
    rplus, rminus = np.zeros(s.mask.shape), np.zeros(s.mask.shape)
    for rows in units:
        for t in range(s.mask.shape[1]):
            p, m = (rows[s.mask[rows, t] & (right[rows] == side)] for side in (True, False))
            rplus[p, t] = a1 + a2 * len(p) * H[p, t] / H[p, t].sum()
            rminus[m, t] = -a1 - a2 * len(m) * (1 / H[m, t]) / (1 / H[m, t]).sum()

    # each set's shaped rewards less the mean, over the std (n - 1), of its collection in the group
    A = np.zeros(s.mask.shape)
    for rows in mixed:
        all_tokens = s.mask & np.isin(np.arange(len(right)), rows)[:, None]
        for side, shaped in ((right, rplus), (~right, rminus)):
            own = all_tokens & side[:, None]
            collection = {
                "with_zeros": shaped[all_tokens], "own_set": shaped[own], "pooled": (rplus + rminus)[all_tokens]
            }[normalise]  # fmt: skip
            if np.ptp(collection) > 0:
                A[own] = (shaped[own] - collection.mean()) / (collection.std(ddof=1) + 1e-6)
    return token_mean(s, *clipped(*ratio(s), A, low, high))

"""Archer (2507.15778): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, group_advantage, k3, nearest_rank, ratio, token_mean

CASES = crossed(
    [{}, {"quantile": 0.5, "kl": 0.3, "dual": 3.0}, {"low_clip": 0.1, "high_clip": 0.9, "quantile": 0.0}],
    entropy=("old", "current"),
)


def archer(s, *, entropy="old", low_clip=0.2, high_clip=0.5, kl=1e-3, quantile=0.8, dual=None):
    # high-entropy tokens of a response: above its own quantile
    H = s.old_entropy if entropy == "old" else s.entropy
    top = np.zeros(s.mask.shape, bool)
    for row, on in enumerate(s.mask):
        if on.any():
            top[row] = H[row] > nearest_rank(H[row, on], quantile)
    clip = np.where(top, high_clip, low_clip)

    # - kl · k3 on the low-entropy tokens
    J, dJ = clipped(*ratio(s), group_advantage(s), clip, clip, dual)
    k, dk = k3(s)
    return token_mean(s, J - kl * ~top * k, dJ - kl * ~top * dk)

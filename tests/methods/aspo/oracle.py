"""ASPO (2510.06062): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import crossed, group_advantage, nearest_rank, ratio, token_mean

CASES = crossed(
    [{}, {"quantile": 0.5, "dual": 1.5}, {"low_eps": 0.0, "high_eps": 1.0, "quantile": 0.0}], entropy=("old", "current")
)


def aspo(s, *, entropy="old", low_eps=0.2, high_eps=0.4, quantile=0.8, dual=3.0):
    # high-entropy tokens of a response: above its own quantile
    H = s.old_entropy if entropy == "old" else s.entropy
    e = np.zeros(s.mask.shape)
    for row, on in enumerate(s.mask):
        if on.any():
            e[row] = np.where(H[row] > nearest_rank(H[row, on], quantile), high_eps, low_eps)
    A, (r, dr) = group_advantage(s), ratio(s)

    # A > 0: the ratio is turned over: (r^ / sg[r^]) A / sg[r^] with r^ = min(r, 1 + e), still where r is clipped;
    # a soft dual clip: beyond dual the weight stays dual and so does the gradient
    r_up = np.minimum(r, 1 + e)
    far = 1 / r_up > dual
    J_up = np.where(far, dual * A, A / r_up)
    dJ_up = np.where(far, dual * A, A / r_up**2 * np.where(r <= 1 + e, dr, 0))

    # A < 0: max(r, 1 - e) A, still where it is clipped, and softly clipped at dual
    r_down = np.maximum(r, 1 - e)
    J_down = np.where(r_down > dual, dual * A, r_down * A)
    dJ_down = np.where(r_down > dual, dual * A, np.where(r >= 1 - e, dr, 0) * A)
    return token_mean(s, np.where(A > 0, J_up, J_down), np.where(A > 0, dJ_up, dJ_down))

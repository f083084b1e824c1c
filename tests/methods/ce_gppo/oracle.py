"""CE-GPPO (2509.20712): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, ratio, token_mean

CASES = [{}, {"low": 0.1, "high": 0.28, "beta1": 0.5, "beta2": 0.25}, {"beta1": 0.0, "beta2": 2.0}, {"dual": 1.5}]


def ce_gppo(s, *, low=0.2, high=0.2, beta1=0.75, beta2=1.0, dual=None):
    A, (r, dr) = group_advantage(s), ratio(s)

    # r A inside the clip and on its harmless side; a clipped token keeps a gradient of constant size:
    # A < 0, r < 1 - low: beta1 (1 - low) / sg[r] · r A, and A > 0, r > 1 + high: beta2 (1 + high) / sg[r] · r A
    below, above = (A < 0) & (r < 1 - low), (A > 0) & (r > 1 + high)
    w = np.select([below, above], [beta1 * (1 - low) / r, beta2 * (1 + high) / r], 1.0)
    J, dJ = w * r * A, w * dr * A

    # the authors' code: A < 0: max(J, dual A), flat where that binds
    if dual is not None:
        cut = (A < 0) & (dual * A > J)
        J, dJ = np.where(cut, dual * A, J), np.where(cut, 0, dJ)
    return token_mean(s, J, dJ)

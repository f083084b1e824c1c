"""SAPO (2511.20347): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, ratio, sequence_mean

CASES = [{}, {"tau_pos": 0.3, "tau_neg": 2.0}]


def sapo(s, *, tau_pos=1.0, tau_neg=1.05):
    # A f(r), f(r) = (4/τ) σ(τ (r - 1)), τ by the sign of A; f' = 4 σ (1 - σ) is 1 at r = 1
    A, (r, dr) = group_advantage(s), ratio(s)
    tau = np.where(A > 0, tau_pos, tau_neg)
    sigma = 1 / (1 + np.exp(-tau * (r - 1)))
    return sequence_mean(s, A * 4 / tau * sigma, A * 4 * sigma * (1 - sigma) * dr)

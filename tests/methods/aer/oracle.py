"""AER (2510.10959): loss and hand-derived gradients, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, group_advantage, groups, ratio, token_mean

CASES = crossed([{}, {"rho": np.inf}, {"rho": 0.9, "low": 0.1, "high": 0.3}], start=(0.0, 0.3), largest=(1.0,))


def aer(s, *, rho=0.5, start=0.0, low=0.2, high=0.2, largest=0.005):
    """`start` is Λ before the first batch; `largest` matters to `after`."""
    # d_i = max(0, 1 - acc_g / ρ), acc_g the group's mean reward within [0, 1]: the harder the prompt, the more entropy
    d = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        d[rows, 0] = max(0.0, 1 - np.clip(s.reward[rows].mean(), 0, 1) / rho)

    # + Λ d H: H has a gradient, Λ and d have none
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    _, dJ_dH = token_mean(s, start * d * s.entropy, start * d)
    return *token_mean(s, J + start * d * s.entropy, dJ), dJ_dH


def after(Lambda, H0, H, *, tau=0.4, rule="sign", delta=1e-4, largest=0.005):
    """Λ after a batch of mean old entropy `H`, the very first batch's being `H0`: towards τ H0, within [0, largest]."""
    distance = tau * H0 - H
    return min(max(Lambda + delta * (np.sign(distance) if rule == "sign" else distance), 0.0), largest)

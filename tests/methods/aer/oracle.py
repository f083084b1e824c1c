"""AER (2510.10959) as one straight line: loss and hand-derived gradients, NumPy float64."""

import numpy as np


def aer(
    mask, reward, group, old_logprob, logprob, entropy,
    *, Lambda=None, tau=0.4, rho=0.5, rule="sign", delta=1e-4, largest=0.005, start=0.0, low=0.2, high=0.2,
):  # fmt: skip
    """`Lambda`: as the batches before left it (None: `start`); `tau`, `rule`, `delta`, `largest` matter to `after`."""
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal.
    # d_i = max(0, 1 - acc_g / ρ), acc_g the group's mean reward within [0, 1]: the harder the prompt, the more entropy
    A, d = np.zeros((len(reward), 1)), np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)
        d[rows, 0] = max(0.0, 1 - min(max(R.mean(), 0.0), 1.0) / rho)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # + Λ d H: H has a gradient, Λ and d have none
    dJ_dH = (start if Lambda is None else Lambda) * d
    J = J + dJ_dH * entropy

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ, -share * dJ_dH


def after(Lambda, H0, H, *, tau=0.4, rule="sign", delta=1e-4, largest=0.005):
    """Λ after a batch of mean old entropy `H`, the very first batch's being `H0`: towards τ H0, within [0, largest]."""
    distance = tau * H0 - H
    return min(max(Lambda + delta * (np.sign(distance) if rule == "sign" else distance), 0.0), largest)

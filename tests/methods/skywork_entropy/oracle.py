"""Skywork-OR1's adaptive entropy (2505.22312) as one straight line: loss and hand-derived gradients, NumPy float64."""

import numpy as np


def skywork_entropy(
    mask, reward, group, old_logprob, logprob, old_entropy, entropy,
    *, alpha=None, controller="current", was_below=True,
    target=0.2, delta=1e-4, largest=0.005, start=0.0, low=0.2, high=0.2,
):  # fmt: skip
    """`alpha`: the coefficient as the batches before left it (None: `start`), `was_below` their gate, which
    controller="released" reads; `delta`, `largest` matter to `after`."""
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

    # + c H with c = α 1[Hbar_old < target]: H has a gradient, c none
    c = (start if alpha is None else alpha) * (old_entropy[mask].mean() < target)

    # the authors' code: the batch before opened or closed the gate
    if controller == "released":
        c = (start if alpha is None else alpha) * was_below
    J = J + c * entropy
    dJ_dH = np.full(mask.shape, c)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ, -share * dJ_dH


def after(alpha, Hbar, target=0.2, delta=1e-4, largest=0.005):
    """α after a batch whose tokens had the mean old entropy `Hbar` (released: mean -lp_old): up below the target, else
    down, in [0, largest]."""
    return min(max(alpha + (delta if Hbar < target else -delta), 0.0), largest)

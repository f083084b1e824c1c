"""HAPO (2509.16591) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def hapo(
    mask, reward, group, old_logprob, logprob, scored_entropy,
    *, quantile=0.8, alpha=1.0, beta=1.0, token_mean_advantage=True, low=0.2, high=0.2, dual=10.0, sign="paper",
):  # fmt: skip
    """`scored_entropy` [N, T]: the old policy's, or the current one's with entropy="current"; never differentiated."""
    # h = (log max(H, 1e-8) - q) / s, with q the nearest-rank quantile of log H and s its root mean square about q
    z = np.log(np.maximum(scored_entropy, 1e-8))
    ranked = np.sort(z[mask])
    h = z - ranked[round(quantile * (len(ranked) - 1))]
    h = h / (np.sqrt(np.mean(h[mask] ** 2)) or 1)

    # h^ in [-1, 1]: the positive over their maximum, the negative over |minimum| (the released code: over the minimum)
    top, bottom = h[mask].max() or 1, h[mask].min() or 1
    h = np.where(h > 0, h / top, h / (abs(bottom) if sign == "paper" else bottom))

    # (2) A_i = (R_i - mean) / (std + 1e-6) over the group's tokens: long responses count more; else as in GRPO
    length = mask.sum(1)
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[length > 0]):
        rows = (length > 0) & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            mean = np.average(R, weights=length[rows])
            std = np.sqrt(np.average((R - mean) ** 2, weights=length[rows]))
            A[rows, 0] = (R - mean) / (std + 1e-6)
            if not token_mean_advantage or np.abs(A[rows]).max() >= 5:
                A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # (4) the lower bound widens where the policy is certain, the upper where it hesitates
    low = np.where(h <= 0, low * (1 - alpha * h), low)
    high = np.where(h > 0, high * (1 + alpha * h), high)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # (3) A <- A (1 + β h^): for h^ > 0 outside the neutral zone of the ratio, for h^ <= 0 inside it
    neutral = (1 - low / 2 < r) & (r < 1 + high / 2)
    A = np.where(neutral == (h <= 0), A * (1 + beta * h), A)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # dual clip: for A < 0 the objective is never below dual · A
    floor = (A < 0) & (r > dual)
    J = np.where(floor, dual * A, J)
    dJ = np.where(floor, 0, dJ)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ


def temperature(previous_entropy, entropy, *, base=1.0, quantile=0.8, tau=0.05, sign="paper"):
    """(1) T_t = T (1 + τ h^_t): h^ of the step's entropy [M], scaled by the previous rollout batch's entropies."""
    z = np.log(np.maximum(previous_entropy, 1e-8))
    q = np.sort(z)[round(quantile * (len(z) - 1))]
    s = np.sqrt(np.mean((z - q) ** 2)) or 1
    top, bottom = (z.max() - q) / s or np.inf, (z.min() - q) / s or np.inf  # a side never seen scores 0
    h = (np.log(np.maximum(entropy, 1e-8)) - q) / s
    h = np.where(h > 0, h / top, h / (abs(bottom) if sign == "paper" else bottom))
    return base * (1 + tau * np.clip(h, -1, 1))

"""HAPO (2509.16591): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, group_advantage, groups, nearest_rank, ratio, token_mean

CASES = crossed(
    [
        {},
        {"quantile": 0.5, "alpha": 0.4},
        {"quantile": 1.0, "beta": 0.3},
        {"quantile": 0.0, "dual": 3.0},
        {"alpha": 0.0},
        {"beta": 0.0},
        {"token_mean_advantage": False, "low": 0.1, "high": 0.3},
    ],
    entropy=("old", "current"),
    sign=("paper", "released"),
)


def hapo(
    s, *, entropy="old", quantile=0.8, alpha=1.0, beta=1.0, token_mean_advantage=True, low=0.2, high=0.2, dual=10.0,
    sign="paper",
):  # fmt: skip
    # h = (log max(H, 1e-8) - q) / rms, q the nearest-rank quantile of log H; the root mean square about q drops out of
    # h^ in [-1, 1]: the positive over their maximum, the negative over |minimum| (the released code: over the minimum)
    h = np.log(np.maximum(s.old_entropy if entropy == "old" else s.entropy, 1e-8))
    h = h - nearest_rank(h[s.mask], quantile)
    top, bottom = h[s.mask].max() or 1, h[s.mask].min() or 1
    h = np.where(h > 0, h / top, h / (abs(bottom) if sign == "paper" else bottom))

    # (2) A_i = (R_i - mean) / (std + 1e-6) over the group's tokens: long responses count more; else as in GRPO
    A = group_advantage(s)
    for rows in groups(s):
        R, n = s.reward[rows], s.mask[rows].sum(1)
        mean = np.average(R, weights=n)
        std = np.sqrt(np.average((R - mean) ** 2, weights=n))
        by_tokens = (R - mean) / (std + 1e-6)
        if token_mean_advantage and R.min() < R.max() and np.abs(by_tokens).max() < 5:
            A[rows, 0] = by_tokens

    # (4) the lower bound widens where the policy is certain, the upper where it hesitates
    low = np.where(h <= 0, low * (1 - alpha * h), low)
    high = np.where(h > 0, high * (1 + alpha * h), high)

    # (3) A <- A (1 + β h^): for h^ > 0 outside the neutral zone of the ratio, for h^ <= 0 inside it
    r, dr = ratio(s)
    neutral = (1 - low / 2 < r) & (r < 1 + high / 2)
    A = np.where(neutral == (h <= 0), A * (1 + beta * h), A)
    return token_mean(s, *clipped(r, dr, A, low, high, dual))


def temperature(previous_entropy, entropy, *, base=1.0, quantile=0.8, tau=0.05, sign="paper"):
    """(1) T_t = T (1 + τ h^_t): h^ of the step's entropy [M], scaled by the previous rollout batch's entropies."""
    z = np.log(np.maximum(previous_entropy, 1e-8))
    q = nearest_rank(z, quantile)
    top, bottom = (z.max() - q) or np.inf, (z.min() - q) or np.inf  # a side never seen scores 0
    h = np.log(np.maximum(entropy, 1e-8)) - q
    h = np.where(h > 0, h / top, h / (abs(bottom) if sign == "paper" else bottom))
    return base * (1 + tau * np.clip(h, -1, 1))

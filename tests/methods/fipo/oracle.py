"""FIPO (2603.19835) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def fipo(
    mask, reward, group, old_logprob, logprob, *,
    decay=32.0, least=1.0, most=1.2, safety=4.0, dual=None, low=0.2, high=0.2,
):  # fmt: skip
    alive = mask.any(1)

    # A_i = (R_i - mean_g) / (std_g + 1e-6); 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    x = np.clip(logprob - old_logprob, -20, 20)
    r = np.exp(x)

    # F_t = d_t + γ F_{t+1}, from the end; γ halves in `decay` tokens
    d = np.where(mask & (r <= (np.inf if dual is None else dual)), x, 0)
    F = np.zeros_like(x)
    for t in reversed(range(x.shape[1])):
        F[:, t] = d[:, t] + (0.5 ** (1 / decay) * F[:, t + 1] if t + 1 < x.shape[1] else 0)
    f = np.clip(np.exp(F), least, most)
    f = np.where((A < 0) & (r > safety), np.clip(f, 0.8, 1.0), f)

    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * r
    if dual is not None:
        dJ = np.where((A < 0) & (r > dual), 0, dJ)
        J = np.where(A < 0, np.maximum(J, dual * A), J)

    share = mask / mask.sum()
    return -(share * f * J).sum(), -share * f * dJ

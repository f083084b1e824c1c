"""M2PO (2510.01161) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def m2po(mask, reward, group, old_logprob, logprob, *, budget=0.04, low=0.3, high=0.5):
    alive = mask.any(1)

    # A_i = (R_i - mean_g) / (std_g + 1e-6); 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # squares of the tokens that are pushed on, from the smallest; the last that the budget holds if all after it are
    # cut to it is the bound
    x = np.clip(logprob - old_logprob, -20, 20)
    squares = sorted((x**2)[mask & (x * A > 0)])
    n = len(squares)
    tau = 20.0
    if n and sum(squares) / n > budget:
        tau = 0.0
        for k in range(n):
            if (sum(squares[: k + 1]) + (n - k - 1) * squares[k]) / n >= budget:
                break
            tau = np.sqrt(squares[k] - 1e-12)
    lower, upper = min(np.exp(-tau), 1 - low), max(np.exp(tau), 1 + high)

    r = np.exp(x)
    J = np.minimum(r * A, np.clip(r, lower, upper) * A)
    dJ = np.where(A > 0, r <= upper, r >= lower) * A * r

    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

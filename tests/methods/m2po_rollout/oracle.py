"""M2PO on the sampler's log-probabilities (AReaL) as one straight line: loss and hand-derived gradient, NumPy."""

import numpy as np


def m2po_rollout(mask, reward, group, old_logprob, logprob, rollout_logprob, *, threshold=0.04, low=0.2, high=0.2):
    alive = mask.any(1)

    # A_i = (R_i - mean_g) / (std_g + 1e-6); 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # the largest squares are dropped until the mean of the others is below the threshold
    keep = mask.copy()
    squares = (rollout_logprob - old_logprob) ** 2
    while keep.any() and squares[keep].mean() >= threshold:
        keep[np.unravel_index(np.argmax(np.where(keep, squares, -1)), keep.shape)] = False

    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    J = keep * np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = keep * np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * np.where(np.abs(x) <= 20, r, 0)

    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

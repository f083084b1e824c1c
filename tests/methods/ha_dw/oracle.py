"""HA-DW (2601.08521) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def ha_dw(
    mask, reward, group, old_logprob, logprob,
    *, past=(), scale=1.3, history=10, anchor="prior", low=0.2, high=0.2,
):  # fmt: skip
    """`past`: the mean rewards of the batches before this one, the oldest first."""
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # C = mean of the last `history` batch means, with or without this batch's own; at the very first its own
    y = reward[alive].mean()
    seen = [*past] if anchor == "prior" else [*past, y]
    C = np.mean(seen[-history:]) if seen else y

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal.
    # A_i <- A_i λ exp(D M), D = -sign(A_i) sign(p^ - C), M = |p^ - C|, p^ the group's mean reward
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            plain = (R - R.mean()) / (R.std(ddof=1) + 1e-6)
            gap = R.mean() - C
            A[rows, 0] = plain * scale * np.exp(-np.sign(plain) * np.sign(gap) * abs(gap))

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over the tokens of a response, then over the responses
    share = mask / (alive.sum() * np.maximum(length, 1))
    return -(share * J).sum(), -share * dJ

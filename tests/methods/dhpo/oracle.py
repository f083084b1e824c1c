"""DHPO (2601.05607) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def dhpo(
    mask, reward, group, old_logprob, logprob, old_entropy=None,
    *, mixing="average", form="mix_of_mins", low=0.2, high=0.28, sequence_low=3e-4, sequence_high=4e-4,
):  # fmt: skip
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # a_t, the share of the token ratio: 1/2, or the token's entropy over the largest of its response
    a = np.full(mask.shape, 0.5)
    if mixing == "entropy":
        for i in np.flatnonzero(alive):
            top = max(old_entropy[i, mask[i]])
            if top > 0:
                a[i] = old_entropy[i] / top

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # s_it = sg[s_i] exp(lp - sg[lp]): worth s_i = exp(mean_t(lp - lp_old)), and ∂s_it/∂lp_it = s_i
    s = np.exp((mask * x).sum(1, keepdims=True) / np.maximum(length, 1))

    r_clipped, s_clipped = np.clip(r, 1 - low, 1 + high), np.clip(s, 1 - sequence_low, 1 + sequence_high)
    if form == "mix_of_mins":
        # a min(r A, clip(r) A) + (1 - a) min(s A, clip(s) A): each branch is clipped for itself
        J = a * np.minimum(r * A, r_clipped * A) + (1 - a) * np.minimum(s * A, s_clipped * A)
        r_moves = np.where(A > 0, r <= 1 + high, r >= 1 - low)
        s_moves = np.where(A > 0, s <= 1 + sequence_high, s >= 1 - sequence_low)
    else:
        # min(m1 A, m2 A), m1 = a r + (1 - a) s, m2 = a clip(r) + (1 - a) clip(s): under m1 both ratios move, under m2
        # each of them only inside its own region
        m1, m2 = a * r + (1 - a) * s, a * r_clipped + (1 - a) * s_clipped
        J = np.minimum(m1 * A, m2 * A)
        r_moves = (m1 * A < m2 * A) | (r == r_clipped)
        s_moves = (m1 * A < m2 * A) | (s == s_clipped)
    dJ = (a * r_moves * dr + (1 - a) * s_moves * s) * A

    # mean over the tokens of a response, then over the responses
    share = mask / (alive.sum() * np.maximum(length, 1))
    return -(share * J).sum(), -share * dJ

"""DHPO (2601.05607): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, group_advantage, ratio, sequence_mean, sequence_ratio

WIDE = {"low": 0.1, "high": 0.4, "sequence_low": 0.1, "sequence_high": 0.2}
CASES = crossed([{}, WIDE], mixing=("average", "entropy"), form=("mix_of_mins", "min_of_mixes"))


def dhpo(
    s, *, mixing="average", form="mix_of_mins", low=0.2, high=0.28, sequence_low=3e-4, sequence_high=4e-4
):  # fmt: skip
    # a_t, the share of the token ratio: 1/2, or the token's entropy over the largest of its response
    a = np.full(s.mask.shape, 0.5)
    if mixing == "entropy":
        for row, on in enumerate(s.mask):
            top = s.old_entropy[row, on].max(initial=0)
            if top > 0:
                a[row] = s.old_entropy[row] / top

    # a r + (1 - a) s_it, s_it = sg[s_i] exp(lp - sg[lp]): worth s_i, and ∂s_it/∂lp_it = s_i
    A, (r, dr), (w, dw) = group_advantage(s), ratio(s), sequence_ratio(s)
    if form == "mix_of_mins":
        # a min(r A, clip(r) A) + (1 - a) min(s A, clip(s) A): each branch is clipped for itself
        (J_r, dJ_r), (J_w, dJ_w) = clipped(r, dr, A, low, high), clipped(w, dw, A, sequence_low, sequence_high)
        return sequence_mean(s, a * J_r + (1 - a) * J_w, a * dJ_r + (1 - a) * dJ_w)

    # min(m1 A, m2 A), m1 = a r + (1 - a) s, m2 = a clip(r) + (1 - a) clip(s): under m1 both ratios move, under m2 each
    # of them only inside its own region
    r_clipped, w_clipped = np.clip(r, 1 - low, 1 + high), np.clip(w, 1 - sequence_low, 1 + sequence_high)
    m1, m2 = a * r + (1 - a) * w, a * r_clipped + (1 - a) * w_clipped
    first = m1 * A < m2 * A
    dJ = (a * (first | (r == r_clipped)) * dr + (1 - a) * (first | (w == w_clipped)) * dw) * A
    return sequence_mean(s, np.minimum(m1 * A, m2 * A), dJ)

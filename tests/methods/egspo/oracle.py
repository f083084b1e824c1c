"""EGSPO (2602.03309): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, group_advantage, nearest_rank, ratio, token_mean

CASES = crossed(
    [{}, {"quantile": 0.3, "attenuation": 0.9}, {"quantile": 1.0, "low": 0.1, "high": 0.4}], curve=("constant", "chord")
)


def egspo(s, *, quantile=0.8, attenuation=0.5, curve="constant", low=0.2, high=0.28):
    # w = 1 where the entropy reaches the batch's quantile, attenuated below it: by a constant, or by sg[4 p (1 - p)] of
    # it, largest where the policy is undecided about the token, p = exp(lp)
    p = np.exp(s.logprob)
    attenuated = attenuation * (4 * p * (1 - p) if curve == "chord" else 1)
    w = np.where(s.old_entropy >= nearest_rank(s.old_entropy[s.mask], quantile), 1.0, attenuated)
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return token_mean(s, w * J, w * dJ)

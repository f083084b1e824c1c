"""Rewards as labels (2602.05630): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import groups, lengths, response_mean

CASES = [{}, {"tau": 2.0}]


def label_loss(s, tau):
    """L, of which the method has the gradient, and ∂L/∂s [N]."""
    score = response_mean(s, np.clip(s.logprob - s.old_logprob, -20, 20))[:, 0]

    # L_g = log(1 + Σ_right e^(-s/τ)) + log(1 + Σ_wrong e^(s/τ)), of groups that have both
    L, dL = 0.0, np.zeros(len(s.reward))
    for rows in groups(s):
        R = s.reward[rows]
        if R.min() < R.max():
            right, wrong = rows[R.mean() < R], rows[R.mean() >= R]
            a, b = np.exp(-score[right] / tau), np.exp(score[wrong] / tau)
            L += np.log(1 + a.sum()) + np.log(1 + b.sum())
            dL[right], dL[wrong] = -a / tau / (1 + a.sum()), b / tau / (1 + b.sum())
    return L / len(groups(s)), dL / len(groups(s))


def real(s, *, tau=0.5):
    gradient = s.mask * label_loss(s, tau)[1][:, None] / lengths(s)
    return (gradient * s.logprob).sum(), gradient  # the slopes are frozen

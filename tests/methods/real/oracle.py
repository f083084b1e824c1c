"""Rewards as labels (2602.05630) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def label_loss(mask, reward, group, old_logprob, logprob, tau):
    """L, of which the method has the gradient, and ∂L/∂s [N]."""
    alive = mask.any(1)
    length = np.maximum(mask.sum(1), 1)
    s = (mask * np.clip(logprob - old_logprob, -20, 20)).sum(1) / length
    groups = np.unique(group[alive])

    # L_g = log(1 + Σ_right e^(-s/τ)) + log(1 + Σ_wrong e^(s/τ)), of groups that have both
    L, dL = 0.0, np.zeros(len(reward))
    for g in groups:
        rows = alive & (group == g)
        right = rows & (reward > reward[rows].mean()) & (reward[rows].min() < reward[rows].max())
        wrong = rows & ~right
        if not right.any() or not wrong.any():
            continue
        a, b = np.exp(-s[right] / tau), np.exp(s[wrong] / tau)
        L += np.log(1 + a.sum()) + np.log(1 + b.sum())
        dL[right] = -a / tau / (1 + a.sum())
        dL[wrong] = b / tau / (1 + b.sum())
    return L / len(groups), dL / len(groups)


def real(mask, reward, group, old_logprob, logprob, *, tau=0.5):
    _, dL = label_loss(mask, reward, group, old_logprob, logprob, tau)
    gradient = mask * (dL / np.maximum(mask.sum(1), 1))[:, None]
    return (gradient * logprob).sum(), gradient  # the slopes are frozen

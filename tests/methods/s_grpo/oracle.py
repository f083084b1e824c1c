"""S-GRPO (2504.20834): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, loss, ratio


def s_grpo(s, *, selected, low=0.2, high=0.2):
    """`selected` [N, T] bool: the tokens that the random draw kept (its law is `kept`, below)."""
    # mean over the kept tokens of a response, then over the responses; one that kept none counts with 0
    share = selected / (s.mask.any(1).sum() * np.maximum(selected.sum(1, keepdims=True), 1))
    return loss(share, *clipped(*ratio(s), group_advantage(s), low, high))


def kept(mask, uniform, *, fraction=0.5, always=0):
    """Each token with probability `fraction`; `uniform` [n] holds the draws of the true tokens, row after row."""
    u = np.ones(mask.shape)
    u[mask] = uniform
    return mask & ((u < fraction) | (mask.cumsum(1) <= always))

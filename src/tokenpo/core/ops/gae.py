"""Generalised advantage estimation (1506.02438) along responses; tokens outside the mask are skipped."""

from __future__ import annotations

import torch
from torch import Tensor


def gae(reward: Tensor, value: Tensor, mask: Tensor, lam: float | Tensor, gamma: float) -> Tensor:
    """A_t = δ_t + γ λ A_t', δ_t = r_t + γ V_t' − V_t, t' the next token of the mask; behind the last, V and A are 0.

    A token outside the mask hands V and A on to the one before it: it costs no discount and has no δ of its own.

    Args:
        reward, value: [N, T].
        mask: [N, T] bool.
        lam: a number, or [N], in [0, 1].

    Returns:
        [N, T] float64, 0 outside the mask.
    """
    reward, value = reward.double(), value.double()
    ahead = later = torch.zeros_like(reward[:, 0])
    advantage = torch.zeros_like(reward)
    for t in reversed(range(mask.shape[1])):
        here = mask[:, t]
        delta = reward[:, t] + gamma * ahead - value[:, t]
        later = torch.where(here, delta + gamma * lam * later, later)
        ahead = torch.where(here, value[:, t], ahead)
        advantage[:, t] = torch.where(here, later, 0.0)
    return advantage

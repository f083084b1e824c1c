"""The statistics of a head as they are written, from all logits and through autograd: the reference of what is fast."""

from __future__ import annotations

import torch
from torch import Tensor

from tokenpo.core.head.token_stats import TokenStats


def naive_stats(
    logits: Tensor, target: Tensor, scale: float | Tensor = 1.0, *, drift: bool = False, entropy_grad: bool = False
) -> TokenStats:
    """log p_y, H = -Σ p log p and Σ p² (log p + H) of softmax(logits · scale); `scale` is 1/T, a number or [M, 1]."""
    logp = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)) * scale, -1)
    p = logp.exp()
    # A token of probability 0 has log p = -inf and adds nothing.
    logp_or_0 = torch.where(p > 0, logp, 0.0)
    entropy = -(p * logp_or_0).sum(-1)
    moved = (p.square() * (logp_or_0 + entropy.unsqueeze(-1))).sum(-1).detach() if drift else None
    logprob = logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return TokenStats(logprob, entropy if entropy_grad else entropy.detach(), moved)

"""The statistics of a head as they are written, from all logits and through autograd: the reference of what is fast."""

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


def naive_divergence(z: Tensor, teacher: Tensor, scale: Tensor | float, beta: float) -> Tensor:
    """D [M] of logits [M, V] of a policy and of a teacher, as the papers write it."""
    p, q = ((x * scale).softmax(-1) for x in (z, teacher))
    if beta in (0.0, 1.0):
        one, other = (q, p) if beta == 0.0 else (p, q)
        return (one * (one / other).log()).sum(-1)
    m = beta * q + (1 - beta) * p
    return beta * (q * (q / m).log()).sum(-1) + (1 - beta) * (p * (p / m).log()).sum(-1)

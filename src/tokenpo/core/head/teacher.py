"""Divergence between the next-token distributions p of the policy and q of a teacher, over the whole vocabulary.

    beta = 0          KL(q ‖ p) = Σ q log(q/p)                          dD/dz_v = p_v − q_v
    beta = 1          KL(p ‖ q) = Σ p log(p/q)                                    p_v (log(p_v/q_v) − KL(p ‖ q))
    between           beta KL(q ‖ m) + (1 − beta) KL(p ‖ m)             (1 − beta) p_v (log(p_v/m_v) − KL(p ‖ m))
                      m = beta q + (1 − beta) p

The divergence between the ends is GKD's (2306.13649, eq. 1). It vanishes toward both ends, as beta KL(q ‖ p) and
(1 − beta) KL(p ‖ q), so the scale jumps at exactly 0 and 1. The teacher's logits exist for one chunk of rows at a time,
and the slope overwrites them.

Axes: M rows (tokens), V vocabulary, H hidden size of the teacher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from .kept import require_whole
from .projection import logits_of, same_dtype
from .softmax import FLOOR, block_rows, part, wide


@dataclass(frozen=True, eq=False)
class Teacher:
    """The tensors that give the teacher's logits; no gradient flows to them.

    Args:
        hidden: [M, H] the teacher's final hidden states that predict the tokens of the policy's rows, in their order.
        head: [V, H] the teacher's output embedding, over the policy's vocabulary.
        bias: [V], if the head has one.
    """

    hidden: Tensor
    head: Tensor
    bias: Tensor | None = None

    def ready(self, rows: int, vocabulary: int, kept: Tensor | None = None) -> Teacher:
        """The teacher without graph, in one dtype.

        Raises:
            TokenPOError: the number of rows or the vocabulary is another, or the policy's tokens have `kept` sets.
        """
        require_whole(kept)
        hidden, head = self.hidden, self.head
        if hidden.dim() != 2 or head.dim() != 2 or hidden.shape != (rows, head.shape[1]) or len(head) != vocabulary:
            raise TokenPOError(
                f"teacher: hidden {list(hidden.shape)} and head {list(head.shape)} must be [M, H] and [V, H] with the "
                f"policy's M = {rows} tokens and vocabulary of V = {vocabulary}"
            )
        return Teacher(*same_dtype(hidden.detach(), head.detach(), None if self.bias is None else self.bias.detach()))

    def compare(self, at: slice | Tensor, logits: Tensor, scale: float | Tensor, beta: float) -> tuple[Tensor, Tensor]:
        """(divergence [M'], its slope [M', V]) of the rows `at`, from the policy's logits [M', V] of these rows."""
        slope = logits_of(part(self.hidden, at), self.head, self.bias)
        return divergence_(logits, slope, scale, beta), slope


@dataclass(frozen=True, eq=False)
class TopTokens:
    """A teacher of which only the likeliest K < V tokens are known; all others count as one token, the tail.

    The divergence of these K + 1 is a lower bound on that of the whole distributions, and 0 where masses agree.

    Args:
        ids: [M, K] ids of these tokens, each once in a row.
        logprob: [M, K] the teacher's log-probabilities of them, nats, at the temperature of the policy's rows.
    """

    ids: Tensor
    logprob: Tensor

    def ready(self, rows: int, vocabulary: int, kept: Tensor | None = None) -> TopTokens:
        """As `Teacher.ready`."""
        require_whole(kept)
        ids, logprob = self.ids, self.logprob.detach()
        if ids.dim() != 2 or logprob.shape != ids.shape or len(ids) != rows or not 0 < ids.shape[1] < vocabulary:
            raise TokenPOError(
                f"TopTokens: ids {list(ids.shape)} and log-probabilities {list(logprob.shape)} must be [M, K] with the "
                f"policy's M = {rows} tokens and 0 < K < {vocabulary}"
            )
        return TopTokens(ids, logprob)

    def compare(self, at: slice | Tensor, logits: Tensor, scale: float | Tensor, beta: float) -> tuple[Tensor, Tensor]:
        """As `Teacher.compare`."""
        ids, q = part(self.ids, at), part(self.logprob, at).to(wide(logits.dtype))
        lp = (logits.to(q.dtype) * scale).log_softmax(-1)
        kept = lp.gather(1, ids)
        rest = lp.scatter_(1, ids, -torch.inf)
        tail = rest.logsumexp(1, keepdim=True)
        # Rounding, or a server's, may leave the teacher's sum at 1 or above.
        others = q.logsumexp(1, keepdim=True).clamp(max=-torch.finfo(q.dtype).eps).expm1().neg().log()
        p, q = (torch.cat(x, 1).clamp_(min=FLOOR) for x in ((kept, tail), (q, others)))
        value, slope = _between(p, q, beta)
        whole = (rest - tail).exp_().mul_(slope[:, -1:])
        return value, whole.scatter_(1, ids, slope[:, :-1]).to(logits.dtype)


AnyTeacher: TypeAlias = Teacher | TopTokens


def divergence_(logits: Tensor, teacher: Tensor, scale: float | Tensor, beta: float) -> Tensor:
    """Divergence [M], nats, from the policy's logits [M, V] at inverse temperature `scale`, a number or [M, 1].

    Overwrites the teacher's logits [M, V] with its gradient to `logits · scale`.
    """
    dtype, step = wide(logits.dtype), block_rows(logits.shape[1], logits.device)
    value = logits.new_empty(len(logits), dtype=dtype)
    for start in range(0, len(logits), step):
        at = slice(start, start + step)
        heat = part(scale, at)
        p, q = ((x[at].to(dtype) * heat).log_softmax(-1).clamp_(min=FLOOR) for x in (logits, teacher))
        value[at], slope = _between(p, q, beta)
        teacher[at] = slope.to(teacher.dtype)
    return value


def _between(lp: Tensor, lq: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Divergence [k] and slope [k, V] of log-probabilities [k, V]."""
    p = lp.exp()
    if beta == 0:
        q = lq.exp()
        return (q * (lq - lp)).sum(-1), p - q
    middle = lq if beta == 1 else torch.logaddexp(lq + math.log(beta), lp + math.log1p(-beta))
    rise = lp - middle
    reverse = (p * rise).sum(-1, keepdim=True)
    slope = p * (rise - reverse)
    if beta == 1:
        return reverse[:, 0], slope
    forward = (lq.exp() * (lq - middle)).sum(-1)
    return beta * forward + (1 - beta) * reverse[:, 0], (1 - beta) * slope

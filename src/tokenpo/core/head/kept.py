"""The tokens that a sampler keeps by top-k, top-p and min-p: their choice, and logits without the others.

The kept tokens belong to the policy that sampled. They are recorded with the response (`Rollouts.kept_ids`), and every
later policy is normalised over the recorded tokens, not over those that it would keep itself.

Axes: M rows, K kept tokens at most, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ...base.errors import TokenPOError

# Largest number of tokens that may be kept of a vocabulary and recorded for each token of a response.
MOST = 1024


class Cut(NamedTuple):
    """The tokens that a sampler may choose, by their probabilities at its temperature; of equal ones the lower ids.

    Args:
        top_p: the fewest most probable ones whose probabilities, renormalised after top_k, reach this sum.
        top_k: at most this number; 0 is the whole vocabulary.
        min_p: those with at least this share of the largest probability.
    """

    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @property
    def fault(self) -> str:
        """What is wrong with a number, beginning with its name; "" if nothing is."""
        if not 0 < self.top_p <= 1:
            return f"top_p is {self.top_p}, expected above 0 and at most 1"
        if not 0 <= self.top_k <= MOST:
            return f"top_k is {self.top_k}, expected 0 (off) to {MOST}"
        return "" if 0 <= self.min_p <= 1 else f"min_p is {self.min_p}, expected 0 (off) to 1"

    def too_many(self, vocabulary: int) -> str:
        """Why the kept tokens of this vocabulary may be too many to record; "" if they are not."""
        if self == Cut() or self.top_k or vocabulary <= MOST:
            return ""
        return (
            f"top_p and min_p alone may keep any number of the model's {vocabulary} tokens, all of which would be "
            f"recorded: set top_k too, to at most {MOST}"
        )

    def of(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """(ids [M, K] by falling p, [M, K] bool: kept) of weights p [M, V] >= 0, which need no normalisation."""
        v = p.shape[1]
        # Bits of positive floats are ordered like their values; the id makes the keys of a row distinct.
        keys = (p.float().view(torch.int32).long() << 32) | torch.arange(v - 1, -1, -1, device=p.device)
        ids = v - 1 - (keys.topk(min(self.top_k or v, v)).values & 0xFFFFFFFF)
        weight = p.gather(-1, ids).double()
        running = weight.cumsum(-1)
        kept = (running - weight < self.top_p * running[:, -1:]) & (weight >= self.min_p * weight[:, :1])
        return ids, kept & (weight > 0)


def trimmed(kept: Tensor) -> Tensor:
    """A copy of kept ids [..., K] without the last columns that are -1 everywhere; waits for the device."""
    return kept[..., : max(1, int((kept >= 0).sum(-1).max()))].clone()


def keep_only_(logits: Tensor, kept: Tensor) -> Tensor:
    """Writes -inf, probability 0, to logits [M, V] outside each row's ids `kept` [M, K].

    -1 fills a row up; a row of -1 alone keeps the whole vocabulary.
    """
    if kept.dim() != 2 or len(kept) != len(logits):
        raise TokenPOError(f"kept has shape {list(kept.shape)}, expected [M, K] with M = {len(logits)}")
    first = kept[:, :1]
    inside = torch.zeros_like(logits, dtype=torch.bool)
    inside.scatter_(1, kept.where(kept >= 0, first).clamp(min=0).long(), True)
    return logits.masked_fill_(~(inside | (first < 0)), -torch.inf)


def require_whole(kept: Tensor | None) -> None:
    """Raises TokenPOError for kept tokens, as the divergence from a teacher is over the whole vocabulary."""
    if kept is not None:
        raise TokenPOError(
            "the divergence from a teacher is over the whole vocabulary, and kept_ids cut it: sample without top-p, "
            "top-k and min-p, or take a method that reads teacher_logprob"
        )

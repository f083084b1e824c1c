"""TRL's metric names, from the very tensors of our loss."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...core.ops import kl
from ...core.types import Batch, Loss


@torch.no_grad()
def measured(accelerator: Any, batch: Batch | None, loss: Loss | None, entropy: Tensor) -> dict[str, float]:
    """`entropy`, `clip_ratio/*` and `kl` over the micro-batch of every rank; all ranks call it.

    Args:
        batch: None where the rank's rows have no response token.
        entropy: [M, T] of the current policy, for where it is not in the batch.
    """
    zero = entropy.new_zeros((), dtype=torch.float32)
    tokens = entropies = low = high = moved = zero
    fewest = most = torch.full_like(zero, math.nan)
    if batch is not None and loss is not None:
        mask, clipped = batch.mask, loss.terms["clipped"].bool() & batch.mask
        below = clipped & (loss.terms["ratio"] < 1)
        above = clipped & ~below
        tokens, entropies = mask.sum(), entropy.detach().where(mask, 0.0).sum()
        low, high = below.sum(), above.sum()
        length = mask.sum(1)
        fewest = (below.sum(1) / length)[length > 0].min()
        most = (above.sum(1) / length)[length > 0].max()
        if batch.rollouts.ref_logprob is not None:
            away = torch.where(mask, batch.rollouts.ref_logprob - batch.policy.logprob.detach(), 0.0)
            moved = kl.k3(away).sum()
    row = torch.stack([value.float() for value in (tokens, entropies, low, high, moved, fewest, most)])
    ranks = accelerator.gather(row[None])
    n, entropies, low, high, moved = ranks[:, :5].sum(0).tolist()
    n = n or math.nan
    metrics = {
        "entropy": entropies / n,
        "clip_ratio/low_mean": low / n,
        "clip_ratio/high_mean": high / n,
        "clip_ratio/region_mean": (low + high) / n,
        "clip_ratio/low_min": _of_known(ranks[:, 5], min),
        "clip_ratio/high_max": _of_known(ranks[:, 6], max),
    }
    if batch is not None and batch.rollouts.ref_logprob is not None:
        metrics["kl"] = moved / n
    return metrics


def _of_known(values: Tensor, choose: Any) -> float:
    known = [x for x in values.tolist() if not math.isnan(x)]
    return choose(known) if known else math.nan

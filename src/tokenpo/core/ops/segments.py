"""Gains of the segments of a response, from values at the cuts."""

from __future__ import annotations

import torch
from torch import Tensor


def gains(cuts: Tensor, begins: Tensor, ends: Tensor, reward: Tensor, start: Tensor | None) -> Tensor:
    """[N, T] float64 value behind a token's segment − value before it; a segment begins at each cut.

    >>> at = torch.tensor
    >>> cuts, value = at([[False, True, False]]), at([[0.0, 0.5, 0.0]])
    >>> gains(cuts, value, value, reward=at([1.0]), start=at([0.25])).tolist()
    [[0.25, 0.5, 0.5]]

    Args:
        cuts: [N, T] bool, on response tokens.
        begins, ends: [N, T] at a cut the value for the segment that begins, and for the one that ends there.
        reward: [N] value behind the last segment.
        start: [N] value before the first token; None is unknown, with a gain of 0 up to the first cut.
    """
    n, length = cuts.shape
    begins, ends = begins.double(), ends.double()
    behind, out = reward.double(), torch.zeros(n, length, dtype=torch.float64, device=cuts.device)
    for t in range(length - 1, -1, -1):
        out[:, t] = behind
        behind = torch.where(cuts[:, t], ends[:, t], behind)
    before = torch.full_like(behind, torch.nan) if start is None else start.double()
    for t in range(length):
        before = torch.where(cuts[:, t], begins[:, t], before)
        out[:, t] -= before
    return out.nan_to_num(nan=0.0)

"""Dynamic sampling: replaces groups whose rewards are all equal, up to a cap."""

from __future__ import annotations

from torch import Tensor

from .ops.group import Groups


def mixed_groups(reward: Tensor, group: Tensor, mask: Tensor) -> Tensor:
    """[N] bool, true for rollouts with a response in groups whose rewards are not all equal.

    Args:
        reward: [N].
        group: [N].
        mask: [N, T].
    """
    return Groups.of(group, mask.any(1)).varied(reward)


def refill(wanted: int, kept: int, drawn: int) -> int:
    """Number of groups to sample next, estimated from the share kept so far; at most a whole batch.

    >>> refill(8, 0, 8), refill(8, 2, 8), refill(8, 7, 8), refill(8, 8, 8)
    (8, 8, 2, 0)

    Args:
        wanted: groups in a batch.
        kept: groups with unequal rewards so far.
        drawn: groups sampled so far.
    """
    return wanted if kept == 0 else min(wanted, -(-(wanted - kept) * drawn // kept))

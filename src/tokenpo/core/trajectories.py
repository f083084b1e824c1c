"""Each trajectory in one row, where an objective sees it; its rows again, in what the objective returns.

A rollout batch may hold a trajectory in several rows (`Rollouts.trajectory`): a context that was compacted, sub-agents.
Objectives see one row for each, whatever they compute, so that no part knows of trajectories.
"""

from typing import Any, TypeVar

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from .ops.trajectory import Join
from .types import Batch, Credit, Policy, Rollouts, by_token, changed

Whole = TypeVar("Whole", Rollouts, Batch, Credit, Policy)


def join(rollouts: Rollouts) -> tuple[Rollouts, Join | None]:
    """The rollouts with each trajectory in one row, and what takes them apart; None if no trajectories are given."""
    if rollouts.trajectory is None:
        return rollouts, None
    places = Join.by(rollouts.trajectory, rollouts.mask)
    return joined(rollouts, places), places


def join_batch(batch: Batch) -> tuple[Batch, Join | None]:
    """As `join`; the batch as it is, and None, if a row of a trajectory is missing or there twice."""
    places = complete(batch.rollouts, batch.credit)
    return (batch, None) if places is None else (joined(batch, places), places)


def complete(rollouts: Rollouts, credit: Credit) -> Join | None:
    """What joins the rows; None without trajectories, or if a row of one is missing or there twice."""
    trajectory, length = rollouts.trajectory, credit.length
    if trajectory is None and length is None:
        return None
    if trajectory is None or length is None:
        raise TokenPOError("only one of rollouts and credit has trajectories: give prepare(rollouts) of these rollouts")
    places = Join.by(trajectory, rollouts.mask)
    found = torch.zeros_like(length).index_add_(0, places.of, rollouts.mask.sum(1))[: len(places.first)]
    return places if torch.equal(found, length[places.first]) else None


def joined(value: Whole, places: Join) -> Whole:
    """The value with each trajectory in one row, and no longer of trajectories; nothing is checked again."""

    def change(name: Any, x: Tensor) -> Tensor | None:
        if name in ("trajectory", "length", "kept_ids"):  # the last is for the head alone
            return None
        # Signals, named by their part: some parts divide by one, in the padding too.
        return places.tokens(x, zero=isinstance(name, str)) if by_token(name) else x[places.first]

    return changed(value, change)


def apart(value: Any, places: Join) -> Any:
    """Credit or terms of whole trajectories, in the rows that were joined."""
    return changed(value, lambda name, x: places.apart(x, zero=isinstance(name, str)))

"""The updates on one rollout batch, in the order that its step plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ..base.errors import NotFinite
from .learner import Learner, Step
from .types import Policy
from .update import Update


def make_updates(
    learner: Learner,
    step: Step,
    make: Callable[[Update], None],
    judge: Callable[[Update], Policy],
    *,
    epochs: int = 1,
    minibatches: int = 1,
    by: Literal["groups", "rows"] = "groups",
    skip: bool = False,
    choose: Callable[[Tensor, Step], None] | None = None,
    most: int | None = None,
) -> None:
    """Makes passes x epochs x minibatches updates.

    Args:
        make: makes one update: losses, the learner's check, and the optimiser step.
        judge: scores the rows of an update under the current weights, without gradient.
        by: the unit that minibatches do not split.
        skip: skip and count an update with non-finite numbers.
        choose: gets the rows [M] in the order of the updates, the last update first, and the step; a tracer chooses.
        most: the largest number of updates; None makes all.

    Raises:
        NotFinite: naming the update.
    """
    plan = step.plan(epochs, minibatches, by)[:most]
    if choose is not None:
        choose(torch.cat([rows for _, rows in reversed(plan)]), step)
    for number, (part, rows) in enumerate(plan):
        if step.stopped:
            step.left_out += len(plan) - number
            return
        update = step.update(rows, part, step.first + number)
        try:
            make(update)
        except NotFinite as error:
            text = f"update {number + 1} of {len(plan)}: {error}"
            if not skip:
                raise NotFinite(text, error.row) from error
            learner.skip(update, text)
        if number + 1 == len(plan) and learner.measures_end:
            learner.end(update, judge(update))

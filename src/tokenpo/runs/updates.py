"""The updates on one rollout batch, shared by engines."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..base.errors import NotFinite
from ..core.learner import Learner, Step
from ..core.types import Policy
from ..core.update import Update
from ..recipe.config import Train
from .records import Tracer


def make_updates(
    learner: Learner, step: Step, make: Callable[[Update], None], judge: Callable[[Update], Policy], tracer: Tracer,
    options: Train, most: int | None = None,
) -> None:  # fmt: skip
    """Makes passes x epochs x minibatches updates.

    Args:
        make: makes one update: losses, the learner's check, and the optimiser step.
        judge: scores the rows of an update under the current weights, without gradient.
        tracer: keeps the last update of each traced response; rows of the last updates are chosen first.
        options: with nonfinite = "skip" an update with non-finite numbers is skipped and counted.
        most: the largest number of updates; None makes all.

    Raises:
        NotFinite: naming the update.
    """
    plan = step.plan(options.epochs, options.minibatches, options.minibatch_by)[:most]
    tracer.choose(torch.cat([rows for _, rows in reversed(plan)]), step)
    for number, (part, rows) in enumerate(plan):
        if step.stopped:
            step.left_out += len(plan) - number
            return
        update = step.update(rows, part, step.first + number)
        try:
            make(update)
        except NotFinite as error:
            text = f"update {number + 1} of {len(plan)}: {error}"
            if options.nonfinite == "stop":
                raise NotFinite(text, error.row) from error
            learner.skip(update, text)
        if number + 1 == len(plan) and learner.measures_end:
            learner.end(update, judge(update))


def learning_rate(options: Train, update: int) -> float:
    """The learning rate of an update (0, 1, ...): rises linearly over `warmup` updates, then is constant."""
    return options.lr * min(1.0, (update + 1) / (options.warmup + 1))

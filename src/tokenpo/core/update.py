"""One optimiser step on a rollout batch: statistics over the whole step, and the losses of any of its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError
from .culprit import SOUND, broken
from .objective import Objective
from .ops.known_gradient import known
from .seeds import keyed_generator
from .statistics import Statistics
from .types import Batch, Credit, Loss, Policy, Rollouts, Totals

if TYPE_CHECKING:
    from .head.fused import Fused
    from .head.teacher import AnyTeacher


def live(objective: Objective, rollouts: Rollouts, credit: Credit) -> Tensor:
    """[N] bool, the rows that can have a gradient, with the other rows of their trajectories."""
    alive = rollouts.mask & (credit.advantage != 0) if objective.follows_advantage else rollouts.mask
    if rollouts.trajectory is None:
        return alive.any(1)
    return torch.isin(rollouts.trajectory, rollouts.trajectory[alive.any(1)])


@dataclass(eq=False)
class Update:
    """One optimiser step; it can be pickled and sent to another process.

    Args:
        totals: denominators over all micro-batches and ranks.
        number: number of the update in the run; with the seed it keys the objective's random draws.
        rows: [M] places in the rollout batch, ascending; a row may occur twice.
        rollouts, credit: those of the rows.
    """

    objective: Objective
    totals: Totals
    number: int
    seed: int
    rows: Tensor
    rollouts: Rollouts
    credit: Credit
    statistics: Statistics = field(default_factory=Statistics)

    def __post_init__(self) -> None:
        self.statistics.add_minibatch(self.totals)

    @property
    def observes(self) -> bool:
        """Whether the objective needs `observe` before its losses."""
        return self.objective.scope == "batch"

    def observe(self, policy: Policy) -> None:
        """Computes an objective's statistics of batch scope, from predictions for all rows of the update in order."""
        # A row that occurs twice is observed once, so that both of its losses are equal.
        if self.observes:
            draws = keyed_generator(self.seed, "observe", self.number)
            rows, inverse = self.rows.unique(return_inverse=True)
            batch = self.batch(policy.rows(torch.searchsorted(self.rows, rows)), rows)
            self.credit = self.objective.observe(batch, draws).credit.rows(inverse)

    def live(self) -> Tensor:
        """[K] places in the rollout batch of the rows that can have a gradient; losses may skip the others."""
        return self.rows[live(self.objective, self.rollouts, self.credit)]

    def pieces(self, size: int) -> Iterator[Tensor]:
        """The live rows in micro-batches of at most `size`; of more for a trajectory that the objective reads whole."""
        live = self.live()
        if self.rollouts.trajectory is None or not self.objective.of_response:
            yield from (piece for piece in live.split(size) if len(piece))
            return
        trajectory = self.of(live)[0].need("trajectory")
        piece = live[:0]
        for one in trajectory.unique():
            rows = live[trajectory == one]
            if len(piece) and len(piece) + len(rows) > size:
                yield piece
                piece = live[:0]
            piece = torch.cat([piece, rows])
        yield from (piece,) if len(piece) else ()

    def evaluate(self, policy: Policy, rows: Tensor | None = None) -> tuple[Batch, Loss]:
        """The batch and the loss of any rows of the update, which add up; adds them to its statistics.

        Args:
            policy: predictions for these rows, in their order.
            rows: places in the rollout batch; None is every row of the update.

        Raises:
            NotFinite: naming the row of the rollout batch.
            TokenPOError: a row is not in the update, or `observe` was not called and the objective needs it.
        """
        batch = self.batch(policy, rows)
        loss = self.objective.loss(batch, self.totals)
        self.statistics.add(batch, loss, self.number, live(self.objective, batch.rollouts, batch.credit))
        return batch, loss

    def evaluate_head(
        self,
        hidden: Tensor,
        head: Tensor,
        rows: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        in_place: bool = False,
        teacher: AnyTeacher | None = None,
    ) -> tuple[Batch, Fused]:
        """`evaluate` from hidden states, fused with the head so that logits are not kept (`core.head.fused`).

        Args:
            hidden, head, bias, teacher: as in `token_stats`, for the response tokens of these rows.
            in_place: add the gradients of head and bias to their `.grad` at once, which saves a buffer of the head's
                size; the graph of the loss then leads to `hidden` alone.
        """
        # Imported here because most programs never fuse.
        from .head.fused import fused_gradient, fused_loss

        rollouts, credit = self.of(rows)
        work = self.objective, hidden, head, rollouts, credit, self.totals
        try:
            if in_place:
                fused, gradient = fused_gradient(*work, bias=bias, teacher=teacher)
                value = known(fused.loss.value, [hidden], [gradient])
                fused = dataclasses.replace(fused, loss=Loss(value, fused.loss.terms))
            else:
                fused = fused_loss(*work, bias=bias, teacher=teacher)
        except NotFinite as error:
            raise self._located(error, rows) from error
        batch = fused.batch(rollouts, credit)
        self.statistics.add(batch, fused.loss, self.number, live(self.objective, rollouts, credit))
        return batch, fused

    def value_loss(self, value: Tensor, rows: Tensor | None = None) -> Loss:
        """The critic's loss of any rows, from its value [M, T] with its graph; adds it to the statistics."""
        loss = self.objective.value_loss(*self.of(rows), value, self.totals)
        self.statistics.add_value(loss)
        return loss

    def batch(self, policy: Policy, rows: Tensor | None = None) -> Batch:
        """The batch of some rows, with the fields of the policy that the objective needs; NotFinite names the row."""
        rollouts, credit = self.of(rows)
        try:
            return Batch(rollouts, credit, policy.only(self.objective.needs))
        except NotFinite as error:
            raise self._located(error, rows) from error

    def of(self, rows: Tensor | None) -> tuple[Rollouts, Credit]:
        """Rollouts and credit of some rows of the update; None is all."""
        if rows is None:
            return self.rollouts, self.credit
        places = torch.searchsorted(self.rows, rows).clamp(max=len(self.rows) - 1)
        if not torch.equal(self.rows[places], rows):
            raise TokenPOError("a loss of rows that are not the update's: take them from update.rows")
        return self.rollouts.rows(places), self.credit.rows(places)

    def culprit(self, policy: Policy, rows: Tensor | None = None) -> str:
        """Names the part and the token that make a loss or gradient of these rows non-finite."""
        number = broken(self.objective, self.batch(policy, rows), self.totals)
        if number is None:
            return SOUND
        return str(dataclasses.replace(number, row=int((self.rows if rows is None else rows)[number.row])))

    def _located(self, error: NotFinite, rows: Tensor | None) -> NotFinite:
        """The error with its row's number in the rollout batch."""
        if error.row is None:
            return error
        row = int((self.rows if rows is None else rows)[error.row])
        return NotFinite(f"row {row} of the rollout batch: {error}", row)

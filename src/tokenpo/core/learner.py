"""The Learner carries an objective through a run; every host drives the same one.

    learner = Learner(objective, length=1024)
    for rollouts in batches:
        step = learner.begin(rollouts)                        phase one; memories move on
        for update in step.updates(epochs=2, minibatches=4):  passes x epochs x minibatches
            update.observe(policy)                            only an objective of batch scope looks
            batch, loss = update.evaluate(policy, rows)       any of its rows, in any number of pieces
            loss.value.backward()
            learner.check(update)                             before the optimiser moves the weights

Where tensors come from, how ranks add up and when a batch begins is the host's business.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError, Unsupported, choose
from .boundary import Boundary
from .culprit import SOUND, broken
from .objective import Objective, State
from .ops.known_gradient import known
from .parts import GroupAdvantage
from .ratio_check import STRICT, RatioCheck
from .seeds import keyed_generator
from .statistics import Statistics
from .types import Batch, Credit, Loss, Policy, Rollouts, Totals

if TYPE_CHECKING:
    from .head.fused import Fused


class Learner:
    """The run-time half of an objective.

    Args:
        objective: what is learnt.
        length: the longest response allowed, tokens; some objectives divide by it.
        seed: of the order of rows and of an objective's random draws, both keyed by the number of the update.
        ratio: the check before the first update; None leaves it out.

    Attributes:
        memory: the numbers of the objective's memories.
        updates: optimiser updates so far, made or skipped.
        step: the last that was begun.
    """

    def __init__(
        self, objective: Objective, *, length: float, seed: int = 0, ratio: RatioCheck | None = STRICT
    ) -> None:
        self.objective, self.length, self.seed = objective, length, seed
        self.memory: State = objective.start()
        self.updates = 0
        self.step: Step | None = None
        self._ratio = ratio

    def begin(self, rollouts: Rollouts, drawn: Rollouts | None = None, credit: Tensor | None = None) -> Step:
        """Phase one of a rollout batch. The memories judge it as they are, then move on.

        Args:
            rollouts: whole groups to train on.
            drawn: everything that was drawn, also groups that are not trained on; None is `rollouts`.
            credit: [N, T] advantages of the host, in the place of the objective's.

        Raises:
            MissingInput: an input that the objective needs is absent.
            TokenPOError: a token of a version that is still to come.
            Unsupported: `credit` would replace the objective's own, or tokens are too old for an objective without a
                ratio.
        """
        self.step = self.look(rollouts, credit)
        self.remember(rollouts if drawn is None else drawn)
        return self.step

    def look(self, rollouts: Rollouts, credit: Tensor | None = None) -> Step:
        """Phase one without moving memories on; for batches that are not trained on. Raises as `begin`."""
        prepared = self.objective.prepare(rollouts, self.memory)
        if credit is not None:
            prepared = Credit(self._checked(rollouts, credit), prepared.signals)
        self._require_versions(rollouts)
        rollouts = self.objective.counted(rollouts)
        return Step(self.objective, rollouts, prepared, self.memory, self.length, self.seed, self.updates)

    def dated(self, rollouts: Rollouts, updates: int) -> Rollouts:
        """The rollouts with `version` filled in, if absent: sampled by the policy as it is now.

        Args:
            updates: of a pass of the objective on the batch. With one in all every lag is 0, and `version` stays None.
        """
        if updates * len(self.objective.split()) == 1 or rollouts.version is not None:
            return rollouts
        return dataclasses.replace(rollouts, version=rollouts.mask.long() * self.updates)

    def remember(self, drawn: Rollouts) -> None:
        """Moves the memories on by all that was drawn, once a batch; `begin` does this."""
        self.memory = self.objective.after(self.memory, drawn)

    def check(self, update: Update, grad_norm: Tensor | None = None, lr: float = math.nan) -> None:
        """Checks and counts an update, after its losses and before the optimiser moves the weights.

        Args:
            grad_norm: of all parameters, if the host knows it.
            lr: learning rate, for the metrics.

        Raises:
            Unsupported: before the first update the policy is not the one that sampled.
            NotFinite: the loss or the norm is not finite.
        """
        step = self._begun()
        if not step.made:
            self.compare(*(update.statistics.disagreement() or ()))
        if not math.isfinite(update.statistics.loss):
            raise NotFinite(f"the loss of {update.objective.name} is {update.statistics.loss}")
        if grad_norm is not None and not math.isfinite(float(grad_norm)):
            raise NotFinite(f"the norm of the gradient of {update.objective.name} is {float(grad_norm)}")
        step.statistics.include(update.statistics)
        step.statistics.add_update(torch.tensor(math.nan) if grad_norm is None else grad_norm.detach(), lr)
        step.made += 1
        self.updates = update.number + 1

    def skip(self, update: Update, why: str) -> None:
        """Counts an update that the host leaves out because a number is not finite."""
        self._begun().statistics.skip(why)
        self.updates = update.number + 1

    def compare(self, largest: float | None = None, mean: float | None = None) -> None:
        """Makes the ratio check, once in a run, from the |log-prob − old log-prob| before the first update, nats.

        Args:
            largest: None takes the mean.
            mean: None where no token was evaluated; the check then waits for the next call.

        Raises:
            Unsupported: the policy is not the one that sampled.
        """
        if self._ratio is None or mean is None:
            return
        self._ratio(self.objective.name, mean if largest is None else largest, mean)
        self._ratio = None

    def metrics(self) -> dict[str, float]:
        """Statistics of the step's updates (docs/metrics.md)."""
        return self._begun().statistics.summary()

    def state_dict(self) -> dict[str, Any]:
        """Objective, memories and updates as plain data for JSON."""
        memory = [dict(self.memory[part]) for part in self.objective.memories]
        return {"objective": str(self.objective), "memory": memory, "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state_dict`.

        Raises:
            TokenPOError: it belongs to another objective, or is no state of a learner.
        """
        try:
            objective, memory, updates = state["objective"], state["memory"], int(state["updates"])
            numbers = [{str(name): float(x) for name, x in held.items()} for held in memory]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TokenPOError(f"what is to be resumed is no state of a learner ({error!r})") from error
        if objective != str(self.objective) or len(numbers) != len(self.objective.memories):
            raise TokenPOError(
                f"this was trained with another objective than {self.objective.name} as it is now: resume it with the "
                f"same method and options, or begin anew from its weights. It was:\n{objective}"
            )
        self.memory, self.updates = dict(zip(self.objective.memories, numbers, strict=True)), updates

    def _begun(self) -> Step:
        if self.step is None:
            raise TokenPOError("no rollout batch was begun: call Learner.begin(rollouts) first")
        return self.step

    def _require_versions(self, rollouts: Rollouts) -> None:
        """Refuses versions from the future, and old ones that the objective does not correct for."""
        if rollouts.version is None:
            return
        sampled = rollouts.version[rollouts.mask]
        if (newest := int(sampled.max())) > self.updates:
            raise TokenPOError(
                f"Rollouts.version: a token was sampled after {newest} updates, and there were {self.updates}: give "
                "the number of updates that the policy had had when it sampled, learner.updates at that time"
            )
        # A weight against the policy that sampled corrects for its age too.
        assumed = () if self.objective.corrects_rollout else self.objective.assumes_on_policy
        if assumed and (oldest := int(sampled.min())) < self.updates:
            raise Unsupported(
                f"{self.objective.name} takes the policy for the one that sampled ({assumed[0]}), and a token was "
                f"sampled {self.updates - oldest} updates ago: train on fresh rollouts, or take a method with a ratio, "
                "such as dapo"
            )

    def _checked(self, rollouts: Rollouts, credit: Tensor) -> Tensor:
        """The host's credit, checked."""
        objective = self.objective
        for part in (objective.credit, *objective.shaping):
            if not isinstance(part, GroupAdvantage):
                raise Unsupported(
                    f"{objective.name} makes its own credit ({part!r}), which that of the host would replace: leave "
                    "credit= out, or take a method whose credit is GroupAdvantage and which shapes no reward"
                )
        return Boundary("Learner.begin").tokens(credit, "credit", rollouts.mask).detach()


@dataclass(eq=False)
class Step:
    """A rollout batch to train on, with the memories' numbers that judged it.

    Args:
        length: the longest response allowed, tokens.
        first: number of its first update.
        made: number of updates made on it.
    """

    objective: Objective
    rollouts: Rollouts
    credit: Credit
    memory: State
    length: float
    seed: int
    first: int = 0
    made: int = 0
    statistics: Statistics = field(default_factory=Statistics)

    def sampled_at(self) -> Tensor | None:
        """[N, T] temperature that sampled each token, by the objective's rule; None where inputs are missing."""
        rule, base = self.objective.temperature, self.rollouts.temperature
        if rule is None or base is None or self.rollouts.old_entropy is None:
            return base
        return base * rule(self.rollouts.old_entropy, 1.0, self.memory[rule])

    def updates(
        self, *, epochs: int = 1, minibatches: int = 1, by: Literal["groups", "rows"] = "groups"
    ) -> Iterator[Update]:
        """Every pass of the objective goes through all minibatches `epochs` times."""
        for number, (part, rows) in enumerate(self.plan(epochs, minibatches, by)):
            yield self.update(rows, part, self.first + number)

    def plan(self, epochs: int, minibatches: int, by: Literal["groups", "rows"]) -> list[tuple[int, Tensor]]:
        """(pass, rows) of each update; seed and first update key the order, so no generator needs saving."""
        draws = keyed_generator(self.seed, "minibatches", self.first)
        dealt = deal(self.rollouts.group, epochs, minibatches, by, draws)
        return [(part, rows) for part in range(len(self.objective.split())) for rows in dealt]

    def update(self, rows: Tensor, part: int = 0, number: int | None = None) -> Update:
        """One optimiser step on these rows [M] of the rollout batch.

        Args:
            part: pass of the objective.
            number: of the update in the run; None is the first of this step.
        """
        rows = rows.sort().values
        rollouts = self.rollouts.rows(rows)
        return Update(
            objective=self.objective.split()[part],
            totals=Totals.of(rollouts, self.length),
            number=self.first if number is None else number,
            seed=self.seed,
            rows=rows,
            rollouts=rollouts,
            credit=self.credit.rows(rows),
        )


@dataclass(eq=False)
class Update:
    """One optimiser step; it can be pickled and sent to another process.

    Args:
        objective: of its pass.
        totals: denominators over all micro-batches and ranks.
        number: of the update in the run; with the seed it keys the objective's random draws.
        rows: [M] places in the rollout batch, ascending; a row may stand there twice.
        rollouts, credit: of these rows.
        statistics: of the losses so far.
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
        """Takes the objective's statistics of the whole update; does nothing for an objective of row scope.

        Args:
            policy: of all its rows, in their order.
        """
        # A row that comes twice is observed once, so that both of its losses are the same.
        if self.observes:
            draws = keyed_generator(self.seed, "observe", self.number)
            rows, again = self.rows.unique(return_inverse=True)
            batch = self.batch(policy.rows(torch.searchsorted(self.rows, rows)), rows)
            self.credit = self.objective.observe(batch, draws).credit.rows(again)

    def live(self) -> Tensor:
        """Places in the rollout batch of the rows that can have a gradient; losses may skip the others."""
        live = self.rollouts.mask.any(1)
        if self.objective.follows_advantage:
            live = ((self.credit.advantage != 0) & self.rollouts.mask).any(1)
        return self.rows[live]

    def pieces(self, size: int) -> Iterator[Tensor]:
        """The live rows in micro-batches of at most `size`."""
        live = self.live()
        return (piece for piece in live.split(size) if len(piece))

    def evaluate(self, policy: Policy, rows: Tensor | None = None) -> tuple[Batch, Loss]:
        """The batch and the loss of any rows of the update, counted in its statistics.

        Losses of disjoint rows add up to that of the whole.

        Args:
            policy: of these rows, in their order.
            rows: places in the rollout batch; None is every row of the update.

        Raises:
            NotFinite: naming the row of the rollout batch.
            TokenPOError: a row of another update, or `observe` was not called and the objective needs it.
        """
        batch = self.batch(policy, rows)
        loss = self.objective.loss(batch, self.totals)
        self.statistics.add(batch, loss, self.number)
        return batch, loss

    def evaluate_head(
        self,
        hidden: Tensor,
        head: Tensor,
        rows: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        in_place: bool = False,
    ) -> tuple[Batch, Fused]:
        """`evaluate` from hidden states, fused with the head so that no logits are kept (`core.head.fused`).

        Args:
            hidden: [M, H], the final hidden state that predicts each response token of these rows.
            head: [V, H] output embedding.
            bias: [V], if the head has one.
            in_place: add the gradients of head and bias to their `.grad` at once, without a second buffer of the head's
                size; the graph of the loss then leads to `hidden` alone.

        Raises:
            NotFinite, TokenPOError: as `evaluate`.
            MissingInput: the rollouts have no token_ids.
        """
        # Imported here because most programs never fuse.
        from .head.fused import fused_gradient, fused_loss

        work = self.objective, hidden, head, *self.of(rows), self.totals
        try:
            if in_place:
                fused, pulled = fused_gradient(*work, bias=bias)
                value = known(fused.loss.value, [hidden], [pulled])
                fused = dataclasses.replace(fused, loss=Loss(value, fused.loss.terms))
            else:
                fused = fused_loss(*work, bias=bias)
        except NotFinite as error:
            raise self.located(error, self.rows if rows is None else rows) from error
        batch = fused.batch(*self.of(rows))
        self.statistics.add(batch, fused.loss, self.number)
        return batch, fused

    def batch(self, policy: Policy, rows: Tensor | None = None) -> Batch:
        """Rows of the update with the fields of the policy that the objective needs.

        Raises:
            NotFinite: naming the row of the rollout batch.
        """
        rollouts, credit = self.of(rows)
        try:
            return Batch(rollouts, credit, policy.only(self.objective.needs))
        except NotFinite as error:
            raise self.located(error, self.rows if rows is None else rows) from error

    def of(self, rows: Tensor | None) -> tuple[Rollouts, Credit]:
        """Rollouts and credit of some rows of the update; None is all.

        Raises:
            TokenPOError: a row of another update.
        """
        if rows is None:
            return self.rollouts, self.credit
        places = torch.searchsorted(self.rows, rows).clamp(max=len(self.rows) - 1)
        if not torch.equal(self.rows[places], rows):
            raise TokenPOError("a loss of rows that are not the update's: take them from update.rows")
        return self.rollouts.rows(places), self.credit.rows(places)

    def culprit(self, policy: Policy, rows: Tensor | None = None) -> str:
        """The part and token that a loss or gradient of these rows which is not finite comes from."""
        number = broken(self.objective, self.batch(policy, rows), self.totals)
        if number is None:
            return SOUND
        return str(dataclasses.replace(number, row=int((self.rows if rows is None else rows)[number.row])))

    @staticmethod
    def located(error: NotFinite, rows: Tensor | Sequence[int]) -> NotFinite:
        """The error with the row of the rollout batch."""
        if error.row is None:
            return error
        row = int(rows[error.row])
        return NotFinite(f"row {row} of the rollout batch: {error}", row)


def deal(
    group: Tensor, epochs: int, minibatches: int, by: Literal["groups", "rows"], generator: torch.Generator
) -> list[Tensor]:
    """Rows of each update, shuffled in every epoch: whole groups, or single rows; fewer units make fewer updates."""
    plan: list[Tensor] = []
    unit = choose("by", by, {"groups": group, "rows": torch.arange(len(group), device=group.device)})
    for _ in range(epochs):
        units = torch.unique(unit)
        units = units[torch.randperm(len(units), generator=generator).to(group.device)]
        parts = [part for part in units.tensor_split(minibatches) if len(part)]
        plan += [torch.isin(unit, part).nonzero()[:, 0] for part in parts]
    return plan

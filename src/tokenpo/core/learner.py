"""What an objective carries through a run, once: every host drives the same learner.

    learner = Learner(objective, length=1024)
    for rollouts in batches:
        step = learner.begin(rollouts)                        phase one; memories move on
        for update in step.updates(epochs=2, minibatches=4):  passes x epochs x minibatches
            update.observe(policy)                            only an objective of batch scope looks
            batch, loss = update.evaluate(policy, rows)       any of its rows, in any number of pieces
            loss.value.backward()
            learner.check(update)                             before the optimiser moves the weights

Where tensors come from, how ranks add up and when a batch begins is the host's; what does not differ is here.
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
from .head.known_gradient import known
from .objective import Objective, State
from .ops import masked
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
        length: the longest response allowed, the constant of objectives that divide by it.
        seed: of the order of rows and of what an objective draws, both keyed by the number of the update.
        ratio: the check before the first update; None leaves it out.

    Attributes:
        memory: what the objective's memories hold.
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
            rollouts: what is trained on, whole groups.
            drawn: all that was drawn, groups that are not trained on included; None is `rollouts`.
            credit: [N, T] advantages of a host that computes its own, in the place of the objective's.

        Raises:
            MissingInput: an input that the objective needs is absent.
            Unsupported: `credit` would replace what the objective does.
        """
        self.step = self.look(rollouts, credit)
        self.remember(rollouts if drawn is None else drawn)
        return self.step

    def look(self, rollouts: Rollouts, credit: Tensor | None = None) -> Step:
        """The same for a batch that is not trained on: nothing is remembered."""
        prepared = self.objective.prepare(rollouts, self.memory)
        if credit is not None:
            prepared = Credit(self._given(rollouts, credit), prepared.signals)
        self._require_versions(rollouts)
        rollouts = self.objective.counted(rollouts)
        return Step(self.objective, rollouts, prepared, self.memory, self.length, self.seed, self.updates)

    def dated(self, rollouts: Rollouts, updates: int) -> Rollouts:
        """The same, sampled by the policy as it is now; a version that is there stays.

        Args:
            updates: that a pass of the objective makes on the batch. Where there is one in all, every lag is 0, which
                says nothing, and no version is filled in.
        """
        if updates * len(self.objective.split()) == 1 or rollouts.version is not None:
            return rollouts
        return dataclasses.replace(rollouts, version=rollouts.mask.long() * self.updates)

    def remember(self, drawn: Rollouts) -> None:
        """The memories move on by all that was drawn, once a batch; `begin` does this."""
        self.memory = self.objective.after(self.memory, drawn)

    def check(self, update: Update, grad_norm: Tensor | None = None, lr: float = math.nan) -> None:
        """After the losses of an update and before the optimiser moves the weights: counts it.

        Args:
            grad_norm: of all parameters, if the host knows it.
            lr: learning rate, for the metrics.

        Raises:
            Unsupported: the policy is not the one that sampled, before anything has moved it.
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
        """Counts an update that the host leaves out, as one of its numbers is not finite."""
        self._begun().statistics.skip(why)
        self.updates = update.number + 1

    def compare(self, largest: float | None = None, mean: float | None = None) -> None:
        """The ratio check of a run, by what was seen before its first update; asked until there was a token to see.

        Raises:
            Unsupported: the policy is not the one that sampled.
        """
        if self._ratio is None or mean is None:
            return
        self._ratio(self.objective.name, mean if largest is None else largest, mean)
        self._ratio = None

    def metrics(self) -> dict[str, float]:
        """Statistics of the step's updates, from the very tensors of the loss (docs/metrics.md)."""
        return self._begun().statistics.summary()

    def state_dict(self) -> dict[str, Any]:
        """Objective, memories and updates as plain data for JSON."""
        memory = [dict(self.memory[part]) for part in self.objective.memories]
        return {"objective": str(self.objective), "memory": memory, "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was taken.

        Raises:
            TokenPOError: it is another objective's, or none.
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
        """The versions that sampled are none of the future, nor older ones where nothing corrects for it."""
        if rollouts.version is None:
            return
        sampled = rollouts.version[rollouts.mask]
        if (newest := int(sampled.max())) > self.updates:
            raise TokenPOError(
                f"Rollouts.version: a token was sampled after {newest} updates, and there were {self.updates}: give "
                "the number of updates that the policy had had when it sampled, learner.updates at that time"
            )
        # A weight against the policy that sampled corrects for its age, too.
        assumed = () if self.objective.corrects_rollout else self.objective.assumes_on_policy
        if assumed and (oldest := int(sampled.min())) < self.updates:
            raise Unsupported(
                f"{self.objective.name} takes the policy for the one that sampled ({assumed[0]}), and a token was "
                f"sampled {self.updates - oldest} updates ago: train on fresh rollouts, or take a method with a ratio, "
                "such as dapo"
            )

    def _given(self, rollouts: Rollouts, credit: Tensor) -> Tensor:
        """Credit of the host's."""
        objective = self.objective
        for part in (objective.credit, *objective.shaping):
            if not isinstance(part, GroupAdvantage):
                raise Unsupported(
                    f"{objective.name} makes its own credit ({part!r}), which that of the host would replace: leave "
                    "credit= out, or take a method whose credit is GroupAdvantage and which shapes no reward"
                )
        check = Boundary("Learner.begin")
        return masked.keep(check.tokens(credit, "credit", rollouts.mask).detach(), rollouts.mask)


@dataclass(eq=False)
class Step:
    """A rollout batch that is trained on.

    Args:
        credit: of phase one.
        memory: what the memories held when they judged the batch.
        length: the longest response allowed.
        first: number of its first update.
        made: updates that were made on it.
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
        """[N, T] temperature at which each token was sampled, by the objective's rule; None where facts are missing."""
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
        """(pass, rows) of each update; the order is keyed by seed and first update, so that no generator is saved."""
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
    """One optimiser step: a value that can be pickled and sent to where its losses are made.

    Args:
        objective: of the pass that it belongs to.
        totals: denominators of all its losses, over all micro-batches and ranks.
        number: of the update in the run; with the seed it keys what the objective draws.
        rows: [M] places in the rollout batch, ascending; one that is trained on twice stands there twice.
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
        """Whether the objective looks at the current policy over the whole update before its losses."""
        return self.objective.scope == "batch"

    def observe(self, policy: Policy) -> None:
        """The look at the whole update; nothing for an objective that takes none.

        A row that the update takes twice is looked at once, so that both of its losses are the same.

        Args:
            policy: of all its rows, in their order.
        """
        if self.observes:
            draws = keyed_generator(self.seed, "observe", self.number)
            rows, again = self.rows.unique(return_inverse=True)
            batch = self.batch(policy.rows(torch.searchsorted(self.rows, rows)), rows)
            self.credit = self.objective.observe(batch, draws).credit.rows(again)

    def live(self) -> Tensor:
        """Places in the rollout batch of the rows that can have a gradient; no loss needs the others."""
        live = self.rollouts.mask.any(1)
        if self.objective.follows_advantage:
            live = ((self.credit.advantage != 0) & self.rollouts.mask).any(1)
        return self.rows[live]

    def pieces(self, size: int) -> Iterator[Tensor]:
        """The live rows in micro-batches of at most `size`; none where no row is live."""
        live = self.live()
        return (piece for piece in live.split(size) if len(piece))

    def evaluate(self, policy: Policy, rows: Tensor | None = None) -> tuple[Batch, Loss]:
        """The loss of any rows of the update, counted, and what it was made of.

        Losses of disjoint rows add up to that of the whole.

        Args:
            policy: of these rows, in their order.
            rows: places in the rollout batch; None is every row of the update.

        Raises:
            NotFinite: naming the row of the rollout batch.
            TokenPOError: a row of another update, or an objective of batch scope that did not `observe` the whole.
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
        """The same from hidden states, in one piece of work with the head; no logits are kept (`core.head.fused`).

        Args:
            hidden: [M, H], the final hidden state that predicts each response token of these rows.
            head: [V, H] output embedding.
            bias: [V], if the head has one.
            in_place: add the gradients of head and bias to their `.grad` at once. The graph of the loss leads to
                `hidden` alone, and no second buffer of the head's size is needed.
        """
        # Here, as most who import the package never fuse.
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
        """Rows as the objective takes them: of the policy it gets what it needs and nothing else.

        Raises:
            NotFinite: naming the row of the rollout batch.
        """
        rollouts, credit = self.of(rows)
        try:
            return Batch(rollouts, credit, policy.only(self.objective.needs))
        except NotFinite as error:
            raise self.located(error, self.rows if rows is None else rows) from error

    def of(self, rows: Tensor | None) -> tuple[Rollouts, Credit]:
        """Facts and credit of some rows of the update; None is all."""
        if rows is None:
            return self.rollouts, self.credit
        places = torch.searchsorted(self.rows, rows).clamp(max=len(self.rows) - 1)
        if not torch.equal(self.rows[places], rows):
            raise TokenPOError("a loss was asked of rows that are not the update's: take them from update.rows")
        return self.rollouts.rows(places), self.credit.rows(places)

    def culprit(self, policy: Policy, rows: Tensor | None = None) -> str:
        """Where a loss or gradient of these rows that is not finite comes from: the part, and the token it is on."""
        found = broken(self.objective, self.batch(policy, rows), self.totals)
        if found is None:
            return SOUND
        return str(dataclasses.replace(found, row=int((self.rows if rows is None else rows)[found.row])))

    @staticmethod
    def located(error: NotFinite, rows: Tensor | Sequence[int]) -> NotFinite:
        """The same error, its row that of the rollout batch."""
        if error.row is None:
            return error
        row = int(rows[error.row])
        return NotFinite(f"row {row} of the rollout batch: {error}", row)


def deal(
    group: Tensor, epochs: int, minibatches: int, by: Literal["groups", "rows"], generator: torch.Generator
) -> list[Tensor]:
    """Rows of each update, shuffled in every epoch: whole groups, or single rows.

    A batch with fewer groups than minibatches makes fewer updates.
    """
    plan: list[Tensor] = []
    unit = choose("by", by, {"groups": group, "rows": torch.arange(len(group), device=group.device)})
    for _ in range(epochs):
        units = torch.unique(unit)
        units = units[torch.randperm(len(units), generator=generator).to(group.device)]
        parts = [part for part in units.tensor_split(minibatches) if len(part)]
        plan += [torch.isin(unit, part).nonzero()[:, 0] for part in parts]
    return plan

"""The Learner carries an objective through a run; every host drives the same one.

    learner = Learner(objective, length=1024)
    for rollouts in batches:
        step = learner.begin(rollouts)                        phase one; memories move on
        for update in step.updates(epochs=2, minibatches=4):  passes x epochs x minibatches
            update.observe(policy)                            only an objective of batch scope looks
            batch, loss = update.evaluate(policy, rows)       any of its rows, in any number of pieces
            loss.value.backward()
            learner.check(update)                             before the optimiser moves the weights
        if learner.measures_end:                              only with a KL target
            learner.end(update, policy)

Where tensors come from, how ranks add up and when a batch begins is the host's business.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError, Unsupported, choose
from .boundary import Boundary
from .kl_hold import KLHold
from .objective import Objective, State
from .ops import masked
from .ops.kl import k3
from .parts import GroupAdvantage
from .ratio_check import STRICT, RatioCheck
from .seeds import keyed_generator
from .statistics import Statistics
from .types import Credit, Policy, Rollouts, Totals
from .update import Update, live


class Learner:
    """The run-time half of an objective.

    Args:
        objective: what is learnt.
        length: the longest response allowed, tokens; some objectives divide by it.
        seed: of the order of rows and of an objective's random draws, both keyed by the number of the update.
        ratio: the check before the first update; None leaves it out.
        kl: holds the KL of each rollout batch; the host then multiplies its learning rate by `rate`.

    Attributes:
        rate: multiplier of the host's learning rate in the step that was begun; 1 without `kl`.
        memory: the numbers of the objective's memories.
        updates: optimiser updates so far, made or skipped.
        step: the last that was begun.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        length: float,
        seed: int = 0,
        ratio: RatioCheck | None = STRICT,
        kl: KLHold | None = None,
    ) -> None:
        self.objective, self.length, self.seed = objective, length, seed
        self.memory: State = objective.start()
        self.updates = 0
        self.step: Step | None = None
        self.kl = kl
        self.rate = 1.0 if kl is None else kl.start
        self._ratio = ratio

    def begin(self, rollouts: Rollouts, drawn: Rollouts | None = None, credit: Tensor | None = None) -> Step:
        """Phase one of a rollout batch. The memories judge it as they are, then move on.

        Args:
            rollouts: whole groups to train on.
            drawn: everything that was drawn, also groups that are not trained on; None is `rollouts`.
            credit: [N, T] advantages of the host, in the place of the objective's.

        Raises:
            MissingInput: an input that the objective needs is absent.
            TokenPOError: a token of a version that is still to come; or the batch before had one update and no `end`,
                with a KL target.
            Unsupported: `credit` would replace the objective's own, or tokens are too old for an objective without a
                ratio.
        """
        step = self.look(rollouts, credit)
        if self.measures_end and self.step is not None and self.step.made == 1 and not self.step.ended:
            raise TokenPOError(
                "the KL of a batch of one update is only seen after it: call Learner.end(update, policy) there, take "
                "two updates of a batch or more, or hold no KL"
            )
        self.rate = self._next_rate()
        self.step = dataclasses.replace(step, kl=self.kl, rate=self.rate)
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

    def check(self, update: Update, grad_norm: Tensor | None = None, lr: float = math.nan) -> bool:
        """Checks and counts an update, after its losses and before the optimiser moves the weights.

        Returns:
            Whether to make the update: False once the KL of an update of this step was above the limit of `kl`.

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
        self.updates = update.number + 1
        if not step.stopped:
            step.statistics.include(update.statistics)
            if self.kl is not None:
                step.saw(update.statistics.kl)
                step.stopped = update.statistics.kl > self.kl.limit
        if step.stopped:
            step.left_out += 1
            return False
        step.statistics.add_update(torch.tensor(math.nan) if grad_norm is None else grad_norm.detach(), lr)
        step.made += 1
        return True

    @property
    def measures_end(self) -> bool:
        """Whether the rate goes by the KL after the last update of the step, which `end` takes."""
        targeted, step = self.kl is not None and self.kl.target is not None, self.step
        return targeted and step is not None and step.made > 0 and not step.stopped

    @torch.no_grad()
    def end(self, update: Update, policy: Policy) -> None:
        """Takes the KL after the last update of the step, which no later one sees.

        Args:
            update: the last.
            policy: of all its rows, in their order, under the weights after it.
        """
        mask = update.rollouts.mask
        moved = torch.where(mask, policy.logprob.detach() - update.rollouts.old_logprob, 0.0).double()
        self._begun().saw(float(k3(moved).sum() / mask.sum()), ended=True)

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
        return self._begun().metrics()

    def state_dict(self) -> dict[str, Any]:
        """Objective, memories and updates as plain data for JSON."""
        memory = [dict(self.memory[part]) for part in self.objective.memories]
        held = {} if self.kl is None else {"rate": self._next_rate()}
        return {"objective": str(self.objective), "memory": memory, "updates": self.updates, **held}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state_dict`.

        Raises:
            TokenPOError: it belongs to another objective, or is no state of a learner.
        """
        try:
            objective, memory, updates = state["objective"], state["memory"], int(state["updates"])
            rate = float(state.get("rate", self.rate))
            numbers = [{str(name): float(x) for name, x in held.items()} for held in memory]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TokenPOError(f"what is to be resumed is no state of a learner ({error!r})") from error
        if objective != str(self.objective) or len(numbers) != len(self.objective.memories):
            raise TokenPOError(
                f"this was trained with another objective than {self.objective.name} as it is now: resume it with the "
                f"same method and options, or begin anew from its weights. It was:\n{objective}"
            )
        self.memory, self.updates = dict(zip(self.objective.memories, numbers, strict=True)), updates
        self.rate, self.step = (1.0 if self.kl is None else rate), None

    def _next_rate(self) -> float:
        """Of the step after this one."""
        if self.kl is None or self.step is None:
            return self.rate
        return self.kl.next(self.rate, self.step.reached, self.step.live())

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
        kl, rate: of the learner.
        stopped: the KL of an update was above the limit of `kl`; none is made from there on.
        left_out: number of updates not made since.
        reached: largest KL that was measured in the step; 0 before the first.
        ended: it was measured after the last update too.
    """

    objective: Objective
    rollouts: Rollouts
    credit: Credit
    memory: State
    length: float
    seed: int
    first: int = 0
    made: int = 0
    kl: KLHold | None = None
    rate: float = 1.0
    stopped: bool = False
    left_out: int = 0
    reached: float = 0.0
    ended: bool = False
    statistics: Statistics = field(default_factory=Statistics)

    def metrics(self) -> dict[str, float]:
        """Statistics of the updates so far; with a KL to hold also `kl_reached`, `kl_rate` and `kl_left_out`, with a
        critic `explained_variance`, with a teacher `teacher_kl`: mean over the tokens of lp_old − lp_teacher."""
        held = {"kl_reached": self.reached, "kl_rate": self.rate, "kl_left_out": self.left_out} if self.kl else {}
        critic = {} if self.objective.critic is None else {"explained_variance": self.explained_variance()}
        taught = {}
        if (teacher := self.rollouts.teacher_logprob) is not None:
            taught = {"teacher_kl": float(masked.mean(self.rollouts.old_logprob - teacher, self.rollouts.mask))}
        return self.statistics.summary() | held | critic | taught

    def saw(self, kl: float, *, ended: bool = False) -> None:
        """Counts a KL, nats per token; NaN is that of no token."""
        self.reached, self.ended = (kl if kl > self.reached else self.reached), self.ended or ended

    def live(self) -> float:
        """Share of the rows with a token that can have a gradient; 0 of no rows."""
        rows = self.rollouts.mask.any(1).sum()
        return float(live(self.objective, self.rollouts, self.credit).sum() / rows.clamp(min=1))

    def explained_variance(self) -> float:
        """1 − Var(G − V) / Var(G) over the tokens, G what the critic is fitted to, V its value before the updates.

        NaN where G does not vary. 0 is what a constant explains, below 0 the value misleads.
        """
        mask, target = self.rollouts.mask, self.credit.signals[self.objective.critic].double()
        spread, rest = (x[mask].var(correction=0) for x in (target, target - self.rollouts.need("value").double()))
        return float(1 - rest / spread) if spread > 0 else math.nan

    def sampled_at(self) -> Tensor | None:
        """[N, T] temperature that sampled each token, by the objective's rule; None where inputs are missing."""
        rule, base = self.objective.temperature, self.rollouts.temperature
        if rule is None or base is None or self.rollouts.old_entropy is None:
            return base
        return base * rule(self.rollouts.old_entropy, 1.0, self.memory[rule])

    def updates(
        self, *, epochs: int = 1, minibatches: int = 1, by: Literal["groups", "rows"] = "groups"
    ) -> Iterator[Update]:
        """Every pass of the objective goes through all minibatches `epochs` times, or until the KL stops the step."""
        plan = self.plan(epochs, minibatches, by)
        for number, (part, rows) in enumerate(plan):
            if self.stopped:
                self.left_out += len(plan) - number
                return
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


def deal(
    group: Tensor, epochs: int, minibatches: int, by: Literal["groups", "rows"], generator: torch.Generator
) -> list[Tensor]:
    """Rows of each update, shuffled in every epoch: whole groups, or single rows; fewer units make fewer updates."""
    plan: list[Tensor] = []
    group, device = group.cpu(), group.device  # read from the device once
    unit = choose("by", by, {"groups": group, "rows": torch.arange(len(group))})
    for _ in range(epochs):
        units = torch.unique(unit)
        units = units[torch.randperm(len(units), generator=generator)]
        parts = [part for part in units.tensor_split(minibatches) if len(part)]
        plan += [torch.isin(unit, part).nonzero()[:, 0].to(device) for part in parts]
    return plan

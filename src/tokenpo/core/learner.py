"""The Learner applies an objective through a run; every host uses the same one (docs/own_loop.md)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError, Unsupported, choose
from .facts import Boundary
from .objective import Objective, State
from .on_policy import STRICT, KLHold, RatioCheck
from .ops import masked
from .ops.ratio import k3
from .parts import GroupAdvantage
from .seeds import keyed_generator
from .statistics import Statistics
from .trajectories import complete
from .types import Credit, Policy, Rollouts, Totals, copied
from .update import Update, live


class Learner:
    """The state of an objective during a run, and the checks of its updates.

    Args:
        length: largest allowed length of a response, tokens; some objectives divide by it.
        seed: seeds the order of rows and the objective's random draws, both keyed by the number of the update.
        ratio: the check before the first update; None makes no check.
        kl: holds the KL of each rollout batch; the host must then multiply its learning rate by `rate`.

    Attributes:
        rate: multiplier of the host's learning rate in the current step; 1 without `kl`.
        memory: the numbers of the objective's memories.
        updates: number of optimiser updates so far, made or skipped.
        step: the current step, from the last `begin`.
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
        if isinstance(objective, str):
            raise TokenPOError(f"a Learner takes an objective: give tokenpo.method({objective!r})")
        self.objective, self.length, self.seed = objective, length, seed
        self.memory: State = objective.start()
        self.updates = 0
        self.step: Step | None = None
        self.kl = kl
        self.rate = 1.0 if kl is None else kl.start
        self._ratio = ratio

    def begin(self, rollouts: Rollouts, drawn: Rollouts | None = None, credit: Tensor | None = None) -> Step:
        """Computes phase one of a rollout batch with the memories' numbers so far; then moves the memories on.

        Args:
            rollouts: whole groups to train on.
            drawn: all sampled rollouts, also those not trained on; None is `rollouts`.
            credit: [N, T] advantages from the host, to use in place of the objective's.

        Raises:
            MissingInput: an input that the objective needs is absent.
            TokenPOError: a `version` lies in the future; or the last batch had one update and, for its KL, no `end`.
            Unsupported: `credit` would replace more than a GroupAdvantage; or tokens are too old for the objective.
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
        """Phase one without moving the memories on, for batches that are not trained on. Raises as `begin`."""
        prepared = self.objective.prepare(rollouts, self.memory)
        if credit is not None:
            prepared = copied(prepared, advantage=self._checked(rollouts, credit))
        self._require_versions(rollouts)
        rollouts = self.objective.counted(rollouts)
        return Step(self.objective, rollouts, prepared, self.memory, self.length, self.seed, self.updates)

    def dated(self, rollouts: Rollouts, updates: int) -> Rollouts:
        """The rollouts with `version` filled in, as if the current policy had sampled them; None stays for one update.

        Args:
            updates: number of updates of each pass on the batch.
        """
        if updates * len(self.objective.split()) == 1 or rollouts.version is not None:
            return rollouts
        return dataclasses.replace(rollouts, version=rollouts.mask.long() * self.updates)

    def remember(self, drawn: Rollouts) -> None:
        """Moves the memories on by all sampled rollouts, once per batch; `begin` calls this."""
        self.memory = self.objective.after(self.memory, drawn)

    def check(self, update: Update, grad_norm: Tensor | None = None, lr: float = math.nan) -> bool:
        """Checks and counts an update, after its losses and before the optimiser moves the weights.

        Returns False from the first update of the step whose KL exceeds the limit of `kl`: leave it out.

        Args:
            grad_norm: norm of the gradient of all parameters, if the host knows it.
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
            if self.kl is not None:
                step.saw(update.statistics.live_kl)
                step.stopped = update.statistics.live_kl > self.kl.limit
            step.statistics.include(update.statistics, made=not step.stopped)
        if step.stopped:
            step.left_out += 1
            return False
        step.statistics.add_update(torch.tensor(math.nan) if grad_norm is None else grad_norm.detach(), lr)
        step.made += 1
        return True

    @property
    def measures_end(self) -> bool:
        """Whether the host should call `end`, because the rate depends on the KL after the step's last update."""
        targeted, step = self.kl is not None and self.kl.target is not None, self.step
        return targeted and step is not None and step.made > 0 and not step.stopped

    @torch.no_grad()
    def end(self, update: Update, policy: Policy) -> None:
        """Measures the KL after the step's last `update`, from the policy on all its rows with the weights after it."""
        mask = update.rollouts.mask & live(update.objective, update.rollouts, update.credit)[:, None]
        moved = torch.where(mask, policy.logprob.detach() - update.rollouts.old_logprob, 0.0).double()
        self._begun().saw(float(k3(moved).sum() / mask.sum()), ended=True)

    def skip(self, update: Update, why: str) -> None:
        """Counts an update that the host leaves out because a number is not finite."""
        self._begun().statistics.skipped.append(why)
        self.updates = update.number + 1

    def compare(self, largest: float | None = None, mean: float | None = None) -> None:
        """Makes the ratio check, once in a run, on |log-prob − old log-prob| before the first update.

        Args:
            largest: maximum over the tokens, nats; None uses the mean.
            mean: mean over the tokens, nats; None, without an evaluated token, leaves the check to the next call.

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
        """Objective, memories, number of updates and rate as plain data for JSON."""
        memory = [dict(self.memory[part]) for part in self.objective.memories]
        held = {} if self.kl is None else {"rate": self._next_rate()}
        return {"objective": str(self.objective), "memory": memory, "updates": self.updates, **held}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state_dict`; TokenPOError for the state of another objective."""
        if not isinstance(state, Mapping) or "objective" not in state:
            raise TokenPOError("this is not a Learner.state_dict(): give one")
        if state["objective"] != str(self.objective):
            raise TokenPOError(
                f"this was trained with another objective than {self.objective.name} as it is now: resume it with the "
                f"same method and options, or begin anew from its weights. It was:\n{state['objective']}"
            )
        self.memory = dict(zip(self.objective.memories, state["memory"], strict=True))
        self.updates, self.step = state["updates"], None
        self.rate = 1.0 if self.kl is None else state.get("rate", self.rate)

    def _next_rate(self) -> float:
        if self.kl is None or self.step is None:
            return self.rate
        return self.kl.next(self.rate, self.step.reached, self.step.live())

    def _begun(self) -> Step:
        if self.step is None:
            raise TokenPOError("no rollout batch was begun: call Learner.begin(rollouts) first")
        return self.step

    def _require_versions(self, rollouts: Rollouts) -> None:
        """Refuses versions from the future, and older ones if the objective does not correct for them."""
        if rollouts.version is None:
            return
        sampled = rollouts.version[rollouts.mask]
        if (newest := int(sampled.max())) > self.updates:
            raise TokenPOError(
                f"Rollouts.version: a token was sampled after {newest} updates, and there were {self.updates}: give "
                "the number of updates that the policy had had when it sampled, learner.updates at that time"
            )
        # A correction toward the policy that sampled also covers that policy's age.
        assumed = () if self.objective.corrects_rollout else self.objective.assumes_on_policy
        if assumed and (oldest := int(sampled.min())) < self.updates:
            raise Unsupported(
                f"{self.objective.name} takes the policy for the one that sampled ({assumed[0]}), and a token was "
                f"sampled {self.updates - oldest} updates ago: train on fresh rollouts, or take a method with a ratio, "
                "such as dapo"
            )

    def _checked(self, rollouts: Rollouts, credit: Tensor) -> Tensor:
        """The host's credit [N, T], checked and detached."""
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
    """A rollout batch to train on, with the memories' numbers that its phase one used.

    Args:
        first, made: number of its first update in the run, and of updates made on it so far.
        stopped, left_out: an update's KL exceeded the limit of `kl`; number of updates not made for that reason.
        reached, ended: largest KL measured in the step; it was also measured after the last update.
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
        """Statistics of the updates so far (docs/metrics.md)."""
        held = {"kl_reached": self.reached, "kl_rate": self.rate, "kl_left_out": self.left_out} if self.kl else {}
        critic = {} if self.objective.critic is None else {"explained_variance": self.explained_variance()}
        from_teacher = {}
        if (teacher := self.rollouts.teacher_logprob) is not None:
            from_teacher = {"teacher_kl": float(masked.mean(self.rollouts.old_logprob - teacher, self.rollouts.mask))}
        return self.statistics.summary() | held | critic | from_teacher

    def saw(self, kl: float, *, ended: bool = False) -> None:
        """Records a measured KL, nats per token; NaN, for no token, is ignored."""
        self.reached, self.ended = (kl if kl > self.reached else self.reached), self.ended or ended

    def live(self) -> float:
        """Share of the responses that can have a gradient, of those with a token."""
        mask, ids = self.rollouts.mask, self.rollouts.trajectory
        ids = torch.arange(len(mask), device=mask.device) if ids is None else ids
        alive = live(self.objective, self.rollouts, self.credit)
        return len(ids[alive].unique()) / max(len(ids[mask.any(1)].unique()), 1)

    def explained_variance(self) -> float:
        """1 − Var(G − V) / Var(G) over the tokens, G the critic's target, V its value before; NaN for a constant G."""
        mask, target = self.rollouts.mask, self.credit.signals[self.objective.critic].double()
        total, residual = (x[mask].var(correction=0) for x in (target, target - self.rollouts.need("value").double()))
        return float(1 - residual / total) if total > 0 else math.nan

    def sampled_at(self) -> Tensor | None:
        """[N, T] temperature at which each token was sampled, by the objective's rule; None if it is not known."""
        rule, base = self.objective.temperature, self.rollouts.temperature
        if rule is None or base is None or self.rollouts.old_entropy is None:
            return base
        return base * rule(self.rollouts.old_entropy, 1.0, self.memory[rule])

    def updates(
        self, *, epochs: int = 1, minibatches: int = 1, by: Literal["groups", "rows"] = "groups"
    ) -> Iterator[Update]:
        """The updates; each pass goes through all minibatches `epochs` times, unless the KL stops the step before."""
        plan = self.plan(epochs, minibatches, by)
        for number, (part, rows) in enumerate(plan):
            if self.stopped:
                self.left_out += len(plan) - number
                return
            yield self.update(rows, part, self.first + number)

    def plan(self, epochs: int, minibatches: int, by: Literal["groups", "rows"]) -> list[tuple[int, Tensor]]:
        """(pass, rows) of each update, in an order that follows from the seed and the number of the first update."""
        draws = keyed_generator(self.seed, "minibatches", self.first)
        dealt = deal(self.rollouts.group, epochs, minibatches, by, draws, self.rollouts.trajectory)
        return [(part, rows) for part in range(len(self.objective.split())) for rows in dealt]

    def update(self, rows: Tensor, part: int = 0, number: int | None = None) -> Update:
        """One optimiser step on these rows [M]; `part` is the objective's pass, `number` the update's in the run."""
        rows = rows.sort().values
        rollouts, credit = self.rollouts.rows(rows), self.credit.rows(rows)
        if rollouts.trajectory is not None and complete(rollouts, credit) is None:
            raise TokenPOError("an update takes whole trajectories: give all rows of each, and each once")
        return Update(
            objective=self.objective.split()[part],
            totals=Totals.of(rollouts, self.length),
            number=self.first if number is None else number,
            seed=self.seed,
            rows=rows,
            rollouts=rollouts,
            credit=credit,
        )


def deal(
    group: Tensor, epochs: int, minibatches: int, by: Literal["groups", "rows"], generator: torch.Generator,
    trajectory: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    """Rows of each update, shuffled anew in every epoch; fewer updates if there are fewer groups or rows.

    The rows of a trajectory are dealt as one row is.
    """
    plan: list[Tensor] = []
    group, device = group.cpu(), group.device  # read from the device once
    rows = torch.arange(len(group)) if trajectory is None else trajectory.cpu()
    unit = choose("by", by, {"groups": group, "rows": rows})
    for _ in range(epochs):
        units = torch.unique(unit)
        units = units[torch.randperm(len(units), generator=generator)]
        parts = [part for part in units.tensor_split(minibatches) if len(part)]
        plan += [torch.isin(unit, part).nonzero()[:, 0].to(device) for part in parts]
    return plan


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
    """Makes passes x epochs x minibatches updates, at most `most`; raises NotFinite naming the update.

    Args:
        make: makes one update: losses, the learner's check, and the optimiser step.
        judge: scores the rows of an update under the current weights, without gradient.
        skip: skip and count an update with non-finite numbers.
        choose: gets the rows [M], those of the last update first, and the step; a tracer chooses.
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

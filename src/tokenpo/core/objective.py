"""An objective: named choices in slots, evaluated in two phases.

`prepare` makes signals and credit once per rollout batch, on whole groups, without gradient. `loss` takes any rows,
with denominators from outside. In between, `observe` takes statistics of a whole step for an objective of batch scope.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

from ..base.errors import TokenPOError, choose
from .boundary import Boundary
from .ops import masked
from .parts import (
    AdaptiveTemperature,
    BatchSignal,
    Coalitions,
    Continuations,
    Critic,
    Drafts,
    Memory,
    MemorySignal,
    Part,
    Signal,
)
from .parts.correction import Rejection
from .parts.part import Aggregate, CreditStage, Penalty, Shaping, SurrogateStage, Weight, check_parts, walk
from .parts.selection import Selection
from .parts.surrogate import Region
from .parts.teacher import TeacherDivergence
from .protocol import Answers
from .types import Batch, Credit, Loss, Policy, Rollouts, Totals, absent

_ROLLOUT_FIELDS = frozenset(field.name for field in dataclasses.fields(Rollouts))
_SHOWN = ("shaping", "credit", "surrogate", "weights", "penalties", "aggregate", "temperature", "passes")

Given = TypeVar("Given", Rollouts, Policy)
State = Mapping[Memory, Mapping[str, float]]


@dataclass(frozen=True)
class Objective:
    """J = Σ coefficient · (weight · surrogate − penalties), maximised; `loss` is −J.

    Args:
        name: used in messages and reports; a method has its builder's.
        credit: rewards of whole groups to advantages of tokens.
        surrogate: ratio and trust region.
        aggregate: coefficient of each token's loss.
        weights: factors ≥ 0 on the surrogate, multiplied.
        penalties: added to the loss of a token, summed.
        shaping: added to the reward before the group is compared, summed.
        temperature: how samplers adapt the temperature; None keeps it constant.
        passes: optimiser passes over a rollout batch in order, each on some of the tokens; () is one pass on all.
            `loss` is that of all tokens; `split` gives the passes.
        only: tokens whose loss counts, penalties included; the denominators stay. None counts all.
        bypass: every part reads `rollout_logprob` in the place of `old_logprob`.
        critic: what the value is fitted to, of a method that reads one; its loss is `value_loss`, apart from J.
        drafts: what a prompt shows of responses that were sampled before; None shows none.

    Raises:
        TokenPOError: a slot, or a field of a part, holds a value of another kind or outside its range.
    """

    name: str = dataclasses.field(default="unnamed", kw_only=True)
    credit: CreditStage
    surrogate: SurrogateStage
    aggregate: Aggregate
    weights: tuple[Weight, ...] = ()
    penalties: tuple[Penalty, ...] = ()
    shaping: tuple[Shaping, ...] = ()
    temperature: AdaptiveTemperature | None = None
    passes: tuple[Selection, ...] = ()
    only: Selection | None = None
    bypass: bool = False
    critic: Critic | None = None
    drafts: Drafts | None = None

    def __post_init__(self) -> None:
        for slot, (kind, *rest) in _slots().items():
            choice, many, maybe = getattr(self, slot), rest == [...], rest == [NoneType]
            stages = choice if many else () if choice is None and maybe else (choice,)
            if not isinstance(stages, tuple) or not all(isinstance(stage, kind) for stage in stages):
                wanted = f"a tuple of {kind.__name__} values" if many else f"a value of type {kind.__name__}"
                raise TokenPOError(f"objective {self.name}: slot {slot} holds {choice!r}, expected {wanted}")
            check_parts(choice, f"objective {self.name}")
        if len({part.beta for part in walk(self) if isinstance(part, TeacherDivergence)}) > 1:
            raise TokenPOError(f"objective {self.name}: two divergences from a teacher of different beta: keep one")

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """The optional inputs that this objective reads: field names of `Rollouts` and `Policy`."""
        return frozenset({"rollout_logprob"} if self.bypass else ()).union(*(part.reads for part in self._parts))

    @functools.cached_property
    def scope(self) -> Literal["row", "batch"]:
        """ "batch" if a row's loss depends on the current policy over the whole optimiser step, else "row"."""
        return "batch" if self._watched else "row"

    @property
    def idle_on_policy(self) -> tuple[Part, ...]:
        """Parts that do nothing in a run with one update per rollout batch."""
        return tuple(part for part in self._parts if part.idle_on_policy)

    @property
    def assumes_on_policy(self) -> tuple[Part, ...]:
        """Parts that are biased when a rollout batch feeds more than one update."""
        return tuple(part for part in self._parts if part.assumes_on_policy)

    @property
    def corrects_rollout(self) -> tuple[Part, ...]:
        """Parts that weigh tokens against the policy that sampled; regions, which weigh nothing, are left out."""
        return tuple(p for p in walk((self.surrogate, self.weights), outside=(Region,)) if p.corrects_rollout)

    @property
    def draws(self) -> bool:
        """Whether `observe` chooses tokens at random."""
        return any(isinstance(part, BatchSignal) and part.draws for part in self._parts)

    @functools.cached_property
    def continuations(self) -> Continuations | None:
        """Where the credit needs continuations; None if nowhere."""
        return next((part for part in self._parts if isinstance(part, Continuations)), None)

    @functools.cached_property
    def coalitions(self) -> Coalitions | None:
        """Which parts of a response the credit has scored; None if none."""
        return next((part for part in self._parts if isinstance(part, Coalitions)), None)

    @functools.cached_property
    def follows_advantage(self) -> bool:
        """Whether rows whose advantage is 0 everywhere may be skipped: they add nothing to loss and gradient."""
        return self.critic is None and all(stage.follows_advantage for stage in self.penalties)

    @functools.cached_property
    def entropy_gradient(self) -> bool:
        """Whether the loss sends a gradient through `Policy.entropy`, whose graph engines then keep."""
        return any(part.entropy_gradient for part in self._parts)

    @functools.cached_property
    def teacher_beta(self) -> float | None:
        """Which divergence the loss differentiates in `Policy.teacher_divergence`, as `TeacherDivergence` says; None is
        none."""
        return next((part.beta for part in self._parts if isinstance(part, TeacherDivergence)), None)

    def split(self) -> tuple[Objective, ...]:
        """One objective for each optimiser pass; they share this one's credit and denominators."""
        return tuple(dataclasses.replace(self, passes=(), only=x) for x in self.passes) or (self,)

    @functools.cached_property
    def memories(self) -> tuple[Memory, ...]:
        """Parts that carry numbers from one rollout batch to the next, in the order of a checkpoint."""
        return tuple(dict.fromkeys(part for part in self._parts if isinstance(part, Memory)))

    def start(self) -> State:
        """The memories' numbers before the first rollout batch."""
        return {memory: self._answers.numbers(memory, "start") for memory in self.memories}

    def after(self, state: State, rollouts: Rollouts) -> State:
        """The memories' numbers after a rollout batch, from all that it drew; called once a batch, after `prepare`.

        Raises:
            MissingInput: the rollouts lack an input that a memory needs.
        """
        rollouts = self._facts(rollouts, frozenset().union(*(m.reads for m in self.memories)))
        return {m: self._answers.numbers(m, "after", state[m], rollouts) for m in self.memories}

    @torch.no_grad()
    def prepare(self, rollouts: Rollouts, state: State | None = None) -> Credit:
        """Phase one on whole groups: advantages and signals, without gradient.

        Args:
            rollouts: whole groups.
            state: the memories' numbers, from `start` or `after`; None is `start`.

        Raises:
            MissingInput: the rollouts lack an input that this objective needs.
        """
        rollouts = self._facts(rollouts, self.needs & _ROLLOUT_FIELDS)
        state = self.start() if state is None else state
        ask, mask, zero = self._answers.tensor, rollouts.mask, torch.zeros_like(rollouts.reward)
        bonus = sum((ask("shaping", part, zero, rollouts) for part in self.shaping), zero)
        numbers = (state[self.credit],) if isinstance(self.credit, Memory) else ()
        advantage = ask("credit", self.credit, mask, rollouts, bonus, *numbers)
        advantage = masked.keep(advantage, mask)  # one name: what has been replaced is not held
        advantage = advantage.to(rollouts.old_logprob.dtype)
        parts = dict.fromkeys(part for part in self._parts if isinstance(part, Signal))
        signals: dict[Part, Tensor] = {part: ask("signal", part, mask, rollouts) for part in parts}
        remembering = [part for part in self.memories if isinstance(part, MemorySignal)]
        signals |= {part: ask("signal", part, mask, rollouts, state[part]) for part in remembering}
        if self.critic is not None:
            signals[self.critic] = self._answers.result("critic", self.critic, self.critic.target, rollouts, bonus)
        return Credit(advantage, signals)

    def counted(self, rollouts: Rollouts) -> Rollouts:
        """The rollouts for phase two and its `Totals`: without the tokens that a `Rejection` takes out of the
        denominators."""
        for part in self._parts:
            if isinstance(part, Rejection) and part.leaves:
                rollouts = rollouts.under(part.counted(self._facts(rollouts, self.needs & _ROLLOUT_FIELDS)))
        return rollouts

    @torch.no_grad()
    def observe(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with the current policy's statistics in its credit; itself for an objective of row scope.

        Args:
            batch: every row of one optimiser step; the policy may be detached.
            generator: for methods that draw tokens; None draws from a generator seeded with 0.
        """
        if self.scope == "row":
            return batch
        restricted = self.restricted(batch)
        for part in dict.fromkeys(walk(self, inner_first=True)):
            if isinstance(part, BatchSignal):
                look = functools.partial(self._answers.trust, self.surrogate, restricted.mask, restricted)
                draws = torch.Generator().manual_seed(0) if generator is None else generator
                signal = self._answers.tensor("signal", part, batch.mask, restricted, look, draws)
                restricted, batch = restricted.with_signal(part, signal), batch.with_signal(part, signal)
        return batch

    def has_observed(self, credit: Credit) -> bool:
        """Whether the credit holds the statistics of `observe`; always so with row scope."""
        return all(part in credit.signals for part in self._watched)

    def observed(self, batch: Batch, totals: Totals, generator: torch.Generator | None = None) -> Batch:
        """The batch after `observe`, which is called here if it has not been and the batch is the whole step.

        Raises:
            TokenPOError: a part of a step without the statistics of the whole.
        """
        if self.has_observed(batch.credit):
            return batch
        if int(batch.mask.sum()) != totals.tokens:
            raise TokenPOError(
                f"{self.name} reads statistics of the current policy over the whole optimiser step, but was given "
                f"{int(batch.mask.sum())} of its {totals.tokens:g} tokens: call observe(batch) on the whole step first"
            )
        return self.observe(batch, generator)

    def loss(self, batch: Batch, totals: Totals, terms: Collection[str] | None = None) -> Loss:
        """Phase two on any rows of an optimiser step; losses of disjoint rows add up to the loss of the step.

        Args:
            batch: any rows; with scope "batch" the whole step, or rows of the batch that `observe` returned.
            totals: denominators of the whole optimiser step.
            terms: names of the terms to keep; None keeps all.

        Raises:
            MissingInput: an input that this objective needs is absent.
            TokenPOError: a part of a step without the statistics of the whole, or an unknown term.
        """
        return self.evaluated(self.observed(self.restricted(batch), totals), totals, terms)

    def value_loss(self, rollouts: Rollouts, credit: Credit, value: Tensor, totals: Totals) -> Loss:
        """The critic's loss on any rows of an optimiser step, a mean over its tokens; disjoint rows add up.

        Args:
            rollouts, credit: of these rows, with the value before the update and the target of `prepare`.
            value: [N, T] of the critic as it is, with its graph.
            totals: denominators of the whole optimiser step.

        Raises:
            TokenPOError: the objective has no critic, or the value is not [N, T] or not finite.
        """
        if self.critic is None:
            raise TokenPOError(f"{self.name} has no critic to train: take a method that reads value, such as ppo")
        mask, value = rollouts.mask, Boundary("value_loss").tokens(value, "value", rollouts.mask)
        target = credit.signals[self.critic]
        token = self.critic.loss(value, rollouts.need("value"), target)
        coefficient = mask.to(token.dtype) / max(totals.tokens, 1)
        terms = {"value": value.detach(), "target": target, "coefficient": coefficient, "loss": token.detach()}
        return Loss((token * coefficient).sum(), terms)

    def evaluated(
        self, batch: Batch, totals: Totals, names: Collection[str] | None, answers: Answers | None = None
    ) -> Loss:
        """`loss` of a batch that is restricted and observed; `answers` calls the parts.

        Raises:
            UnknownName: no such term.
        """
        ask, mask = self._answers if answers is None else answers, batch.mask
        trust = ask.trust(self.surrogate, mask, batch)
        weight = penalty = None
        with torch.no_grad():
            for stage in self.weights:
                factor = ask.tensor("weight", stage, mask, batch, trust)
                weight = factor if weight is None else weight * factor
        for stage in self.penalties:
            term = ask.tensor("penalty", stage, mask, batch, trust)
            penalty = term if penalty is None else penalty + term
        surrogate = trust.value if weight is None else weight * trust.value
        token = -surrogate if penalty is None else penalty - surrogate
        coefficient = self._coefficient(ask, batch, totals, token.dtype)
        # On padding the coefficient is 0, the others anything.
        terms: dict[str, Tensor | float] = {
            "advantage": batch.credit.advantage,
            "ratio": trust.ratio,
            "low": trust.lower,
            "high": trust.upper,
            "clipped": trust.clipped,
            "weight": 1.0 if weight is None else weight,
            "surrogate": trust.value,
            "penalty": 0.0 if penalty is None else penalty,
            "coefficient": coefficient,
            "loss": token,
        }
        kept = terms if names is None else {name: choose("loss: term", name, terms) for name in names}
        return Loss((token * coefficient).sum(), {name: _term(x, token) for name, x in kept.items()})

    def _coefficient(self, ask: Answers, batch: Batch, totals: Totals, dtype: torch.dtype) -> Tensor:
        mask = batch.mask
        share = () if self.aggregate.share is None else (batch.signal(self.aggregate.share),)
        coefficient = ask.coefficient(self.aggregate, mask, mask, totals, *share)
        if self.only is not None:
            mask = mask & ask.tensor("selection", self.only, mask, batch)
        # A tensor takes the loss's precision before the product, not after it.
        coefficient = coefficient.to(dtype) if isinstance(coefficient, Tensor) else coefficient
        return coefficient * mask.to(dtype)

    @functools.cached_property
    def _parts(self) -> tuple[Part, ...]:
        """Every part, outermost first."""
        return tuple(walk(self))

    @functools.cached_property
    def _answers(self) -> Answers:
        return Answers(self.name)

    @functools.cached_property
    def _watched(self) -> tuple[BatchSignal, ...]:
        """The signals of `observe`."""
        return tuple(part for part in self._parts if isinstance(part, BatchSignal))

    def restricted(self, batch: Batch) -> Batch:
        """The batch restricted to the fields in `needs`; parts see no others.

        Raises:
            MissingInput: one of them is absent.
        """
        facts = self._facts(batch.rollouts, self.needs & _ROLLOUT_FIELDS)
        return batch.of(facts, self._declared(batch.policy, self.needs - _ROLLOUT_FIELDS))

    def _facts(self, rollouts: Rollouts, names: frozenset[str]) -> Rollouts:
        if not self.bypass:
            return self._declared(rollouts, names)
        return self._declared(rollouts, names | {"rollout_logprob"}).bypassed()

    def _declared(self, owner: Given, names: frozenset[str]) -> Given:
        for name in sorted(names):
            if getattr(owner, name, None) is None:
                raise absent(name, f"{self.name} needs {name}")
        return owner.only(names)

    def __str__(self) -> str:
        return "\n".join([f"objective {self.name}", *(f"  {slot:<12}{choice}" for slot, choice in self._choices())])

    def _choices(self) -> Iterator[tuple[str, str]]:
        """Every slot and its parts, as text."""
        for slot in _SHOWN:
            choice = getattr(self, slot)
            shown = " · ".join(map(repr, choice)) if isinstance(choice, tuple) else repr(choice)
            yield slot, shown if choice not in ((), None) else "-"
        if self.critic is not None:
            yield "critic", repr(self.critic)
        if self.drafts is not None:
            yield "drafts", repr(self.drafts)
        if self.bypass:
            yield "bypass", "the old policy is the one that sampled"
        yield "needs", ", ".join(sorted(self.needs)) or "-"


@functools.cache
def _slots() -> Mapping[str, tuple[Any, ...]]:
    """The kind of part of each slot, as annotated; behind it ... of a tuple, NoneType where there may be none."""
    hints = get_type_hints(Objective)
    return {name: get_args(hint) or (hint,) for name, hint in hints.items() if name not in ("name", "bypass")}


def _term(value: Tensor | float, like: Tensor) -> Tensor:
    """[N, T] detached."""
    value = value.detach() if isinstance(value, Tensor) else like.new_full((), value)
    return value if value.shape == like.shape else value.expand_as(like)

"""An objective: parts in named slots, evaluated in two phases.

Phase one, `prepare`, computes signals and credit once per rollout batch, on whole groups and without gradient. Phase
two, `loss`, takes any rows of an optimiser step; its denominators are passed in. Between them, an objective of batch
scope computes statistics over the whole step in `observe`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

from ..base.errors import TokenPOError, choose, refuse
from .facts import Boundary, facts_of
from .ops import masked
from .parts import AdaptiveTemperature, BatchSignal, Critic, Memory, MemorySignal, Part, Signal, Supplied
from .parts.correction import Rejection, RolloutCorrection
from .parts.part import Aggregate, CreditStage, Penalty, Selection, Shaping, SurrogateStage, Weight, check_parts, walk
from .parts.surrogate import Region
from .parts.teacher import TeacherDivergence
from .trajectories import apart, join, join_batch
from .types import Batch, Credit, Loss, Policy, Rollouts, Totals, Trust, absent, copied

_POLICY_FIELDS = frozenset(facts_of(Policy))
_SHOWN = ("shaping", "credit", "surrogate", "weights", "penalties", "aggregate", "temperature", "passes")

Given = TypeVar("Given", Rollouts, Policy)
State = Mapping[Memory, Mapping[str, float]]


@dataclass(frozen=True)
class Objective:
    """J = Σ coefficient · (weight · surrogate − penalties), maximised; `loss` is −J.

    Raises TokenPOError if a slot or a field of a part holds a value of the wrong type or outside its range.

    Args:
        credit: turns the rewards of whole groups into advantages of tokens.
        surrogate: ratio and trust region.
        aggregate: coefficient of each token's loss.
        weights: factors ≥ 0 on the surrogate; their product is used.
        penalties: terms of a token's loss; their sum is added.
        shaping: bonuses on the reward; their sum is added before the group is compared.
        temperature: how samplers adapt the temperature; None keeps it constant.
        passes: the optimiser passes over a rollout batch, each on the tokens that it selects; () is one pass on all.
            `loss` covers all tokens; `split` gives an objective per pass.
        only: tokens whose loss, penalties included, counts; denominators do not change.
        bypass: every part reads `rollout_logprob` in place of `old_logprob`.
        critic: the critic's loss, for a method that reads `value`; `value_loss` returns it, and J does not contain it.
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

    def __post_init__(self) -> None:
        for slot, (kind, *rest) in _slots().items():
            choice, many, maybe = getattr(self, slot), rest == [...], rest == [NoneType]
            stages = choice if many else () if choice is None and maybe else (choice,)
            if not isinstance(stages, tuple) or not all(isinstance(stage, kind) for stage in stages):
                expected = f"a tuple of {kind.__name__} values" if many else f"a value of type {kind.__name__}"
                raise TokenPOError(f"objective {self.name}: slot {slot} holds {choice!r}, expected {expected}")
            check_parts(choice, f"objective {self.name}")
        betas = {part.beta for part in walk(self) if isinstance(part, TeacherDivergence)}
        leaving = any(isinstance(part, Rejection) and part.leaves and part.of_tokens for part in walk(self))
        of_response = any(isinstance(part, RolloutCorrection) and part.sequence for part in walk(self))
        faults = [
            len(betas) > 1 and f"objective {self.name}: two divergences from a teacher of different beta: keep one",
            leaving
            and of_response
            and f"objective {self.name}: a weight of whole responses would lose the tokens that leave: reject whole "
            "responses, weigh tokens, or keep rejected tokens in the denominators (leaves=False)",
        ]
        refuse(faults, TokenPOError)

    @functools.cached_property
    def needs(self) -> frozenset[str]:
        """Names of the optional inputs that this objective reads."""
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
    def idle_as_sampled(self) -> tuple[Part, ...]:
        """Parts that do nothing in a run whose old log-probabilities are the sampler's."""
        return tuple(part for part in self._parts if part.idle_as_sampled)

    @property
    def assumes_on_policy(self) -> tuple[Part, ...]:
        """Parts that are biased when a rollout batch feeds more than one update."""
        return tuple(part for part in self._parts if part.assumes_on_policy)

    @property
    def corrects_rollout(self) -> tuple[Part, ...]:
        """Parts that weight tokens by their ratio to the policy that sampled; not regions, which weight nothing."""
        return tuple(p for p in walk((self.surrogate, self.weights), outside=(Region,)) if p.corrects_rollout)

    @functools.cached_property
    def of_response(self) -> tuple[Part, ...]:
        """Parts that, in phase two, read a whole response or trajectory."""
        return tuple(part for part in self._parts if part.of_response)

    @property
    def draws(self) -> bool:
        """Whether `observe` chooses tokens at random."""
        return any(signal.draws for signal in self._watched)

    @functools.cached_property
    def supplied(self) -> tuple[Supplied, ...]:
        """Parts whose inputs the engine that sampled computes into `Rollouts.extra`."""
        return tuple(dict.fromkeys(part for part in self._parts if isinstance(part, Supplied)))

    @functools.cached_property
    def follows_advantage(self) -> bool:
        """Whether rows with advantage 0 at every token may be skipped, as they add nothing to loss and gradient."""
        return self.critic is None and all(stage.follows_advantage for stage in self.penalties)

    @functools.cached_property
    def entropy_gradient(self) -> bool:
        """Whether the loss sends a gradient through `Policy.entropy`, whose graph engines then keep."""
        return any(part.entropy_gradient for part in self._parts)

    @functools.cached_property
    def teacher_beta(self) -> float | None:
        """The beta of `Policy.teacher_divergence` (see `TeacherDivergence`); None if the loss does not read it."""
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
        return {memory: self.call("memory", memory, method="start") for memory in self.memories}

    def after(self, state: State, rollouts: Rollouts) -> State:
        """The memories' numbers after all that was sampled for a batch; to be called once, after `prepare`."""
        rollouts = self._facts(join(rollouts)[0], frozenset().union(*(m.reads for m in self.memories)))
        return {m: self.call("memory", m, state[m], rollouts, method="after") for m in self.memories}

    @torch.no_grad()
    def prepare(self, rollouts: Rollouts, state: State | None = None) -> Credit:
        """Phase one on whole groups: advantages and signals, without gradient.

        Args:
            rollouts: whole groups; MissingInput if they lack an input that this objective needs.
            state: the memories' numbers, from `start` or `after`; None is `start`.
        """
        whole, places = join(rollouts)
        if places is not None:
            credit = self.prepare(whole, state)
            return copied(apart(credit, places), length=self.counted(whole).mask.sum(1)[places.of])
        rollouts = self._facts(rollouts, self.needs - _POLICY_FIELDS)
        state = self.start() if state is None else state
        mask, zero = rollouts.mask, torch.zeros_like(rollouts.reward)
        bonus = sum((self._tensor("shaping", part, zero, rollouts) for part in self.shaping), zero)
        advantage = self._tensor("credit", self.credit, mask, rollouts, bonus)
        advantage = masked.keep(advantage, mask)  # reuses the name, to free the tensor that it replaces
        advantage = advantage.to(rollouts.old_logprob.dtype)
        parts = dict.fromkeys(part for part in self._parts if isinstance(part, Signal))
        # Denominators count what `counted` leaves, a group's as well as those of `Totals`.
        counted, denominators = self.counted(rollouts), {*walk(self.aggregate)}
        signals: dict[Part, Tensor] = {
            part: self._tensor("signal", part, mask, counted if part in denominators else rollouts) for part in parts
        }
        memory_signals = [part for part in self.memories if isinstance(part, MemorySignal)]
        signals |= {part: self._tensor("signal", part, mask, rollouts, state[part]) for part in memory_signals}
        if self.critic is not None:
            signals[self.critic] = self.call("critic", self.critic, rollouts, bonus, method="target")
        return Credit(advantage, signals)

    def counted(self, rollouts: Rollouts) -> Rollouts:
        """The rollouts for phase two and its `Totals`, without the tokens of a `Rejection` that `leaves`."""
        for part in self._parts:
            if isinstance(part, Rejection) and part.leaves:
                whole, places = join(rollouts)
                kept = part.counted(self._facts(whole, self.needs - _POLICY_FIELDS))
                rollouts = rollouts.under(kept if places is None else places.apart(kept))
        return rollouts

    @torch.no_grad()
    def observe(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch, a whole optimiser step, with the statistics of batch scope in its credit.

        Methods that choose tokens at random take the generator; None is one with seed 0.
        """
        if self.scope == "row":
            return batch
        whole, places = join_batch(batch)
        if places is not None:
            credit = apart(self.observe(whole, generator).credit, places)
            return copied(batch, credit=copied(credit, length=batch.credit.length))
        if batch.credit.length is not None:
            raise TokenPOError(f"{self.name}: a row of a trajectory is missing: observe the whole step")
        restricted = self.restricted(batch)
        for part in dict.fromkeys(walk(self, inner_first=True)):
            if isinstance(part, BatchSignal):
                look = functools.partial(self._trust, restricted)
                draws = torch.Generator().manual_seed(0) if generator is None else generator
                signal = torch.zeros_like(batch.policy.logprob)
                if restricted.mask.any():  # a step of no token has nothing to look at
                    signal = self._tensor("signal", part, batch.mask, restricted, look, draws)
                restricted, batch = restricted.with_signal(part, signal), batch.with_signal(part, signal)
        return batch

    def has_observed(self, credit: Credit) -> bool:
        """Whether the credit holds the statistics of `observe`; always true with row scope."""
        return all(part in credit.signals for part in self._watched)

    def observed(self, batch: Batch, totals: Totals, generator: torch.Generator | None = None) -> Batch:
        """The batch after `observe`; calls it if that was not done, and raises TokenPOError for a part of a step."""
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
            TokenPOError: the batch is a part of a step and lacks the statistics of the whole, or lacks a row of a
                trajectory that a part reads whole; or a term is unknown.
        """
        whole, places = join_batch(batch)
        if whole.credit.length is not None and self.of_response:
            reader = type(self.of_response[0]).__name__
            raise TokenPOError(
                f"{self.name}: {reader} reads whole trajectories, and a row of one is missing: give all rows of a "
                "trajectory to one loss, as Update.pieces does"
            )
        loss = self.evaluated(self.observed(self.restricted(whole), totals), totals, terms)
        return loss if places is None else Loss(loss.value, apart(loss.terms, places))

    def value_loss(self, rollouts: Rollouts, credit: Credit, value: Tensor, totals: Totals) -> Loss:
        """The critic's loss on any rows of an optimiser step, a mean over its tokens; losses of disjoint rows add up.

        `rollouts` have the value before the update, `credit` the critic's target, and `value` [N, T] the graph.
        """
        if self.critic is None:
            raise TokenPOError(f"{self.name} has no critic to train: take a method that reads value, such as ppo")
        mask, value = rollouts.mask, Boundary("value_loss").tokens(value, "value", rollouts.mask)
        target = credit.signals[self.critic]
        token = self.critic.loss(value, rollouts.need("value"), target)
        coefficient = mask.to(token.dtype) / max(totals.tokens, 1)
        terms = {"value": value.detach(), "target": target, "coefficient": coefficient, "loss": token.detach()}
        return Loss((token * coefficient).sum(), terms)

    def evaluated(self, batch: Batch, totals: Totals, names: Collection[str] | None) -> Loss:
        """`loss` of a batch that is restricted and observed."""
        mask, trust = batch.mask, self._trust(batch)
        weight = penalty = None
        with torch.no_grad():
            for stage in self.weights:
                factor = self._tensor("weight", stage, mask, batch, trust)
                weight = factor if weight is None else weight * factor
        for stage in self.penalties:
            term = self._tensor("penalty", stage, mask, batch, trust)
            penalty = term if penalty is None else penalty + term
        surrogate = trust.value if weight is None else weight * trust.value
        token = -surrogate if penalty is None else penalty - surrogate
        coefficient = self._coefficient(batch, totals, token.dtype)
        # On padding the coefficient is 0; other terms may hold anything.
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

    def _coefficient(self, batch: Batch, totals: Totals, dtype: torch.dtype) -> Tensor:
        mask, aggregate, (n, t) = batch.mask, self.aggregate, batch.mask.shape
        share = () if aggregate.share is None else (batch.signal(aggregate.share),)
        # Rows of a trajectory whose other rows are elsewhere: an aggregate counts the tokens of all.
        length = batch.credit.length
        counted = mask if length is None else masked.inside(length)
        coefficient = self.call("aggregate", aggregate, counted, totals, *share)
        if not isinstance(coefficient, float | int):
            # A tensor is converted to the loss's dtype before the product, not after it.
            coefficient = self._shaped("aggregate", aggregate, coefficient, (), (n, 1), (n, t)).to(dtype)
        if self.only is not None:
            mask = mask & self._tensor("selection", self.only, mask, batch)
        return coefficient * mask.to(dtype)

    @functools.cached_property
    def _parts(self) -> tuple[Part, ...]:
        return tuple(walk(self))

    def call(self, slot: str, part: Part, *given: Any, method: str = "__call__") -> Any:
        """The result of a part; an exception gets a note that names the objective, the slot and the part."""
        try:
            return getattr(part, method)(*given)
        except Exception as error:
            error.add_note(f"objective {self.name}: {slot} {part!r}")
            raise

    def called_by(self, call: Callable[..., Any]) -> Objective:
        """The same objective, but `call` takes the place of its method of that name, and sees each part's result."""
        return copied(self, call=call)

    def _tensor(self, slot: str, part: Part, like: Tensor, *given: Any) -> Tensor:
        return self._shaped(slot, part, self.call(slot, part, *given), like.shape)

    def _trust(self, batch: Batch) -> Trust:
        trust, shape = self.call("surrogate", self.surrogate, batch), batch.mask.shape
        for name in ("value", "ratio", "clipped", "lower", "upper"):
            x = getattr(trust, name, None)
            if not (name in ("lower", "upper") and isinstance(x, float | int)):
                self._shaped(f"Trust.{name} of surrogate", self.surrogate, x, shape)
        return trust

    def _shaped(self, slot: str, part: Part, x: Any, *shapes: tuple[int, ...]) -> Any:
        """x, the result of a part, which must be a tensor of one of these shapes."""
        if isinstance(x, Tensor) and x.shape in shapes:
            return x
        seen = f"shape {list(x.shape)}" if isinstance(x, Tensor) else f"{x!r:.40}"
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise TokenPOError(f"objective {self.name}: {slot} {part!r} gave {seen}, expected a tensor of shape {wanted}")

    @functools.cached_property
    def _watched(self) -> tuple[BatchSignal, ...]:
        return tuple(part for part in self._parts if isinstance(part, BatchSignal))

    def restricted(self, batch: Batch) -> Batch:
        """The batch without the optional fields that `needs` does not name; parts see only this."""
        facts = self._facts(batch.rollouts, self.needs - _POLICY_FIELDS)
        return batch.of(facts, self._declared(batch.policy, self.needs & _POLICY_FIELDS))

    def _facts(self, rollouts: Rollouts, names: frozenset[str]) -> Rollouts:
        if not self.bypass:
            return self._declared(rollouts, names)
        return self._declared(rollouts, names | {"rollout_logprob"}).bypassed()

    def _declared(self, owner: Given, names: frozenset[str]) -> Given:
        for name in sorted(names):
            if owner.get(name) is None:
                raise absent(name, f"{self.name} needs {name}")
        return owner.only(names)

    def __str__(self) -> str:
        return "\n".join([f"objective {self.name}", *(f"  {slot:<12}{choice}" for slot, choice in self._choices())])

    def _choices(self) -> Iterator[tuple[str, str]]:
        for slot in _SHOWN:
            choice = getattr(self, slot)
            shown = " · ".join(map(repr, choice)) if isinstance(choice, tuple) else repr(choice)
            yield slot, shown if choice not in ((), None) else "-"
        if self.critic is not None:
            yield "critic", repr(self.critic)
        if self.bypass:
            yield "bypass", "the old policy is the one that sampled"
        yield "needs", ", ".join(sorted(self.needs)) or "-"


@functools.cache
def _slots() -> Mapping[str, tuple[Any, ...]]:
    """Slot -> (class of its parts,), by its annotation; followed by ... for a tuple, by NoneType if it may be None."""
    hints = get_type_hints(Objective)
    return {name: get_args(hint) or (hint,) for name, hint in hints.items() if name not in ("name", "bypass")}


def _term(value: Tensor | float, like: Tensor) -> Tensor:
    """[N, T] detached."""
    value = value.detach() if isinstance(value, Tensor) else like.new_full((), value)
    return value if value.shape == like.shape else value.expand_as(like)

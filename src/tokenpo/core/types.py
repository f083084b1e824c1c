"""The frozen values that an objective takes and returns; their padding is zeroed here, once.

Axes: N rollouts in the batch, T response tokens (padded), V vocabulary, G rollouts of one prompt (a group).
Log-probabilities and entropies are in nats, at the temperature of sampling.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from ..base.errors import MissingInput, TokenPOError, UnknownName, choose, nearest
from . import ranges
from .facts import (
    COUNT,
    DIVERGENCE,
    ENTROPY,
    LOGPROB,
    NATS,
    POSITIVE,
    Boundary,
    Fact,
    documented,
    entropy,
    entropy_drift,
    facts_of,
    given,
    optional,
)
from .ops.trajectory import Join


class Rows:
    """A value of N rows."""

    def rows(self, index: Any) -> Self:
        """The rows at `index` (slice, int tensor [M] or bool tensor [N]), without checking them again."""
        return self if isinstance(index, slice) and index == slice(None) else changed(self, lambda _, x: x[index])


@dataclass(frozen=True, eq=False)
class Fields(Rows):
    """Tensors by name; a field whose default is None is optional."""

    def need(self, name: str) -> Tensor:
        """The field with this name, or MissingInput; a part must declare an optional one in `reads`."""
        if (value := self.get(name)) is None:
            owner = type(self).__name__
            if name not in FACTS:
                raise UnknownName(f"{owner} has no field {name!r}; {nearest(name, FACTS)}")
            raise absent(name, f"{owner}.{name} is absent, or read by a part that does not declare it in `reads`")
        return value

    def get(self, name: str) -> Tensor | None:
        """The field with this name, or the one in `extra`; None if it is absent."""
        return vars(self)[name] if name in vars(self) else vars(self).get("extra", {}).get(name)

    def known(self) -> dict[str, Tensor]:
        """The tensors that are given, by name."""
        fields = vars(self) | vars(self).get("extra", {})
        return {name: x for name, x in fields.items() if isinstance(x, Tensor)}

    def only(self, names: Collection[str]) -> Self:
        """A copy without the optional fields, and those in `extra`, that are not in `names`."""
        extra = {name: x for name, x in vars(self).get("extra", {}).items() if name in names}
        absent = {k: None for k in vars(self) if k in OPTIONAL and k not in names}
        return copied(self, **absent, **({"extra": extra} if "extra" in vars(self) else {}))

    @classmethod
    def of(cls, known: Mapping[str, Tensor], needs: Collection[str] | None = None) -> Self:
        """From tensors by name: takes the required fields, and the optional ones in `needs`; None takes all."""
        needs = known.keys() if needs is None else needs
        names = [
            f.name for f in dataclasses.fields(cls) if f.name != "extra" and (f.default is not None or f.name in needs)
        ]
        fields: dict[str, Any] = {name: known[name] for name in names}
        if cls is Rollouts:
            fields["extra"] = {name: known[name] for name in needs if name in EXTRA}
        return cls(**fields)


@documented
@dataclass(frozen=True, eq=False)
class Rollouts(Fields):
    """Data about N sampled responses, detached.

    Padding may hold anything, even NaN: it is zeroed here, except in token_ids. Half-precision tensors become float32.

    Args:
        mask: [N, T] bool, true on response tokens, EOS included; never inferred from token values.
        kept_ids: [N, T, K] int, the tokens among which the sampler chose (top-k, top-p, min-p), filled up with -1; only
            -1 for a token chosen from the whole vocabulary. Log-probabilities and entropies are then over these tokens.
        extra: inputs that only some methods read, by name; each is declared by the `parts.Supplied` that gives it.
        ...: as each field declares.

    Raises:
        UnknownName: no part declares an input in `extra`.
        TokenPOError: a wrong shape or dtype; an empty batch; a number where mask is true that is not finite, or
            outside its bounds by more than 0.05 nats of a log-probability or 0.5 of an entropy; turns that descend.
    """

    mask: Tensor
    reward: Tensor = field(
        metadata=given(
            "reward of the response; with several reward functions, the host's combination of them", shape="[N]"
        )
    )
    group: Tensor = field(metadata=given("the prompt that the rollout answers", COUNT, shape="[N]"))
    old_logprob: Tensor = field(
        metadata=given("log-probability of the sampled token under the policy that the update is anchored to", LOGPROB)
    )
    old_entropy: Tensor | None = optional(
        "full-vocabulary entropy of the old policy", ENTROPY, scale=0.7, formula=entropy
    )
    rollout_logprob: Tensor | None = optional(
        "log-probability of the sampled token as the sampling engine reported it",
        LOGPROB,
        neutral="old_logprob",
        scale=0.01,
    )
    ref_logprob: Tensor | None = optional(
        "log-probability of the sampled token under the reference policy", LOGPROB, neutral="old_logprob", scale=0.3
    )
    teacher_logprob: Tensor | None = optional(
        "log-probability of the sampled token under the teacher",
        LOGPROB,
        neutral="old_logprob",
        scale=0.5,
        more="in the teacher's own context, at the temperature of sampling",
    )
    temperature: Tensor | None = optional(
        "the temperature at which log-probabilities and entropies are taken",
        POSITIVE,
        neutral=1.0,
        scale=0.05,
        more="the constant one of sampling, also where a method adapts it per token (`objective.temperature`)",
    )
    token_ids: Tensor | None = optional("the sampled tokens", COUNT, context=True)
    turn: Tensor | None = optional(
        "the turn that the token was sampled in",
        COUNT,
        ascending=True,
        more="tokens of a tool or an environment between two turns are outside the mask",
    )
    anchor: Tensor | None = optional(
        "the state that the token's turn began in",
        COUNT,
        more="the same number for the same state, compared within a group",
    )
    rewards: Tensor | None = optional(
        "reward from each of R reward functions, in the same order for all; NaN where one does not apply",
        shape="[N, R]",
    )
    token_reward: Tensor | None = optional(
        "the reward that arrives with the token",
        scale=0.3,
        more="a tool's verdict at the last token of the turn that called it, the reward of the whole response at its "
        "last token",
    )
    version: Tensor | None = optional("number of updates of the policy that sampled the token", COUNT)
    value: Tensor | None = optional(
        "a critic's estimate, before the token, of the reward still to come",
        scale=0.5,
        more="from the critic before the update; a method that reads it also defines the critic's loss",
    )
    trajectory: Tensor | None = optional(
        "the sampled trajectory that the row is a part of",
        COUNT,
        shape="[N]",
        more="rows of one trajectory stand in their order and count once; without it each row is one",
    )
    kept_ids: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check = Boundary("Rollouts")
        check.mask(self.mask)
        for name, fact in facts_of(Rollouts).items():
            x = getattr(self, name)
            if x is not None or name in REQUIRED:
                object.__setattr__(self, name, check.fact(x, name, fact, self.mask))
        extra = {
            name: check.fact(x, name, choose("Rollouts.extra", name, EXTRA), self.mask)
            for name, x in self.extra.items()
        }
        object.__setattr__(self, "extra", extra)
        if self.kept_ids is not None:
            check.kept_ids(self.kept_ids, self.token_ids, self.mask)
        if self.trajectory is not None:
            self._check_trajectories(self.trajectory)

    def _check_trajectories(self, trajectory: Tensor) -> None:
        """What a response has once must be equal in all rows of a trajectory; its turns ascend from row to row."""
        join = Join.by(trajectory, self.mask)
        for name, x in self.known().items():
            if not by_token(name) and (apart := ~x.isclose(x[join.first][join.of], 0, 0, equal_nan=True)).any():
                row = int(apart.reshape(len(x), -1).any(1).nonzero()[0])
                raise TokenPOError(
                    f"Rollouts.{name} differs in rows {int(join.first[join.of[row]])} and {row} of trajectory "
                    f"{int(trajectory[row])}: give all rows of a trajectory its {name}"
                )
            if name in FACTS and FACTS[name].ascending:
                Boundary("Joined trajectories: Rollouts").fact(
                    join.tokens(x), name, FACTS[name], join.tokens(self.mask)
                )

    def __len__(self) -> int:
        return self.mask.shape[0]

    def under(self, mask: Tensor) -> Rollouts:
        """A copy whose mask is reduced to the tokens that are also in `mask` [N, T]; nothing is checked again."""
        return copied(self, mask=self.mask & mask)

    def bypassed(self) -> Rollouts:
        """A copy with rollout_logprob as old_logprob."""
        return copied(self, old_logprob=self.need("rollout_logprob"))


@documented
@dataclass(frozen=True, eq=False)
class Policy(Fields):
    """The current policy's predictions for the tokens of a batch; `Batch` checks them.

    Args:
        ...: as each field declares.
    """

    logprob: Tensor = field(
        metadata=given("log-probability of the sampled token; carries the graph", LOGPROB, neutral="old_logprob")
    )
    entropy: Tensor | None = optional(
        "full-vocabulary entropy", ENTROPY, neutral="old_entropy", scale=0.7, formula=entropy,
        more="read without gradient unless a stage says otherwise",
    )  # fmt: skip
    entropy_drift: Tensor | None = optional(
        "Σ_v p_v² (log p_v + H)",
        NATS,
        scale=0.1,
        formula=entropy_drift,
        more="one logit-space step lowers the entropy of a token where A · (p (log p + H) − entropy_drift) > 0",
    )
    teacher_divergence: Tensor | None = optional(
        "divergence between the next-token distributions of the policy and of a teacher",
        DIVERGENCE,
        scale=0.3,
        more="over the whole vocabulary, with beta = `Objective.teacher_beta`; carries the graph",
    )


# Declarations in `Rollouts.extra`: every class of `parts.Supplied` adds its own.
EXTRA: dict[str, Fact] = {}
FACTS: Mapping[str, Fact] = ChainMap(dict(facts_of(Rollouts)), dict(facts_of(Policy)), EXTRA)
# The fields that an objective may name in `needs`.
OPTIONAL = frozenset(
    name for owner in (Rollouts, Policy) for name in facts_of(owner) if owner.__dataclass_fields__[name].default is None
) - {"trajectory"}
REQUIRED = frozenset(facts_of(Rollouts)) - OPTIONAL - {"trajectory"}
TAUGHT = frozenset({"teacher_logprob", "teacher_divergence"})  # inputs that come from a teacher


@dataclass(frozen=True, eq=False)
class Credit(Rows):
    """Result of phase one, `Objective.prepare`.

    Args:
        advantage: [N, T], 0 where the mask is false.
        signals: signal -> its [N, T] tensor.
        length: [N] tokens of the row's whole trajectory; None without `Rollouts.trajectory`.
    """

    advantage: Tensor
    signals: Mapping[Any, Tensor] = field(default_factory=dict)
    length: Tensor | None = None

    @staticmethod
    def joined(credits: Sequence[Credit]) -> Credit:
        """The rows of several credits, concatenated."""
        signals = {key: torch.cat([credit.signals[key] for credit in credits]) for key in credits[0].signals}
        lengths = [credit.length for credit in credits if credit.length is not None]
        return Credit(
            torch.cat([credit.advantage for credit in credits]), signals, torch.cat(lengths) if lengths else None
        )


@dataclass(frozen=True, eq=False)
class Batch(Rows):
    """Input of phase two: any rows of the rollouts, with their credit and the current policy's predictions.

    Raises:
        TokenPOError: shapes do not match, or the policy has a non-finite number where mask is true.
    """

    rollouts: Rollouts
    credit: Credit
    policy: Policy

    def __post_init__(self) -> None:
        mask, check = self.rollouts.mask, Boundary("Policy")
        Boundary("Credit").shape(self.credit.advantage, "advantage", tuple(mask.shape))
        sealed = {
            name: x if x is None and name in OPTIONAL else check.tokens(x, name, mask)
            for name, x in vars(self.policy).items()
        }
        object.__setattr__(self, "policy", copied(self.policy, **sealed))

    @classmethod
    def unchecked(cls, rollouts: Rollouts, credit: Credit, policy: Policy) -> Batch:
        """A batch without checks, which wait for the device; the caller must check the policy elsewhere."""
        batch = object.__new__(cls)
        vars(batch).update(rollouts=rollouts, credit=credit, policy=policy)
        return batch

    @property
    def mask(self) -> Tensor:
        """[N, T] bool, true on response tokens."""
        return self.rollouts.mask

    def need(self, name: str) -> Tensor:
        """An optional field of the rollouts or the policy, or MissingInput; a part must declare it in `reads`."""
        return (self.policy if name in vars(self.policy) else self.rollouts).need(name)

    def of(self, rollouts: Rollouts, policy: Policy) -> Batch:
        """A batch with the same credit and other rollouts and policy, which are not checked."""
        return copied(self, rollouts=rollouts, policy=policy)

    def signal(self, key: Any) -> Tensor:
        """The [N, T] tensor of a signal that `prepare` or `observe` computed."""
        try:
            return self.credit.signals[key]
        except KeyError:
            raise TokenPOError(
                f"{key} was not computed: give the credit that this objective's prepare(rollouts) returned, and for an "
                "objective of batch scope the batch that observe(batch) returned"
            ) from None

    def with_signal(self, key: Any, value: Tensor) -> Batch:
        """A copy of the batch with one more signal in its credit."""
        return copied(self, credit=copied(self.credit, signals={**self.credit.signals, key: value}))


@dataclass(frozen=True, eq=False)
class Trust:
    """The result of a surrogate.

    Args:
        value: [N, T] the objective to maximise, with gradient.
        ratio: [N, T] the importance ratio, with gradient.
        lower, upper: [N, T] or a number, bounds of the ratio.
        clipped: [N, T] bool, true where the trust region removes the token's gradient.
    """

    value: Tensor
    ratio: Tensor
    lower: Tensor | float
    upper: Tensor | float
    clipped: Tensor


@dataclass(frozen=True)
class Totals:
    """Denominators of one whole optimiser step, over all micro-batches and ranks; the loss never counts its own rows.

    Args:
        tokens: response tokens.
        sequences: rollouts with at least one response token.
        length: largest allowed length of a response, the constant that Dr. GRPO divides by.
    """

    tokens: float
    sequences: float
    length: float

    @staticmethod
    def of(rollouts: Rollouts, length: float | None = None) -> Totals:
        """Counts one whole optimiser step; None takes the longest response of these rollouts as the largest length."""
        per_row = rollouts.mask.sum(1)
        if rollouts.trajectory is not None:
            place = torch.unique(rollouts.trajectory, return_inverse=True)[1]
            per_row = torch.zeros_like(per_row).index_add_(0, place, per_row)
        tokens, sequences, longest = torch.stack([per_row.sum(), (per_row > 0).sum(), per_row.max()]).tolist()
        if length is not None:
            ranges.require("Totals", "length", length, ranges.POSITIVE)
        return Totals(tokens, sequences, longest if length is None else length)


@dataclass(frozen=True, eq=False)
class Loss:
    """The scalar to minimise, and the tensors that it is computed from.

    Args:
        value: Σ terms["loss"] · terms["coefficient"], with gradient.
        terms: [N, T] detached, by name. The coefficient is 0 where the mask is false; the others may hold anything
            there, so read `terms["weight"][mask]`.
    """

    value: Tensor
    terms: Mapping[str, Tensor]


def absent(name: str, prefix: str) -> TokenPOError:
    """MissingInput for an absent field, UnknownName for one that does not exist; `prefix` starts the message."""
    if name not in FACTS:
        return UnknownName(f"{prefix}, which is not a field of Rollouts or Policy; {nearest(name, FACTS)}")
    given = f'Rollouts(extra={{"{name}": ...}})' if name in EXTRA else f"Rollouts({name}=...)"
    given = f"Policy({name}=...)" if name in facts_of(Policy) else given
    return MissingInput(f"{prefix}: give {given} with shape {FACTS[name].shape}", name)


def by_token(name: Any) -> bool:
    """Whether a tensor of this name has a number for each token, rather than one for the row."""
    return name not in FACTS or FACTS[name].shape == "[N, T]"


def changed(value: Any, change: Callable[[Any, Tensor], Tensor | None], name: Any = None) -> Any:
    """The value with `change(name, tensor)` in place of every tensor, also inside the values and mappings it holds."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        return change(name, value)
    if isinstance(value, Mapping):
        return {key: changed(x, change, key) for key, x in value.items()}
    return copied(value, **changed(vars(value), change))


def copied(value: Any, /, **changes: Any) -> Any:
    """`dataclasses.replace` without `__post_init__`: nothing is checked again."""
    copy = object.__new__(type(value))
    vars(copy).update(vars(value) | changes)
    return copy

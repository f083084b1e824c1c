"""The values that flow through an objective: frozen, no maths, padding zeroed once, here.

Axes: N rollouts in the batch, T response tokens (padded), V vocabulary, G rollouts of one prompt (a group).
Entry [i, t] of every [N, T] tensor belongs to the t-th response token of rollout i. Log-probabilities and
entropies are in nats, at the temperature that sampled the token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import TokenPOError

_TOKEN_FIELDS = ("old_logprob", "old_entropy", "rollout_logprob", "ref_logprob", "temperature")


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Facts about N sampled responses; no later step changes them.

    Padded positions may hold anything, NaN included: they are zeroed here and never read again. Half-precision
    tensors become float32.

    Args:
        mask: [N, T] bool, true on response tokens (EOS inside). Carried, never inferred from token values.
        reward: [N], finite.
        group: [N] int >= 0, the prompt each rollout answers.
        old_logprob: [N, T] nats, log-probability of the sampled token under the policy the update is anchored to.
        old_entropy: [N, T] nats, full-vocabulary entropy of that policy.
        rollout_logprob: [N, T] nats, the same log-probability as the engine that sampled reported it.
        ref_logprob: [N, T] nats, under the reference policy.
        temperature: [N, T] > 0, the temperature at which each token was sampled.
        token_ids: [N, T] int, the sampled tokens.

    Raises:
        TokenPOError: a wrong shape or dtype, a negative group, an empty batch, a non-finite value where mask is true.
    """

    mask: Tensor
    reward: Tensor
    group: Tensor
    old_logprob: Tensor
    old_entropy: Tensor | None = None
    rollout_logprob: Tensor | None = None
    ref_logprob: Tensor | None = None
    temperature: Tensor | None = None
    token_ids: Tensor | None = None

    def __post_init__(self) -> None:
        where = "Rollouts"
        _require(self.mask, "mask", where, dim=2, kind="bool")
        n, _ = self.mask.shape
        if self.mask.numel() == 0:
            raise TokenPOError(f"{where}.mask has shape {list(self.mask.shape)}: the batch is empty, give at least one rollout with one position")
        _require(self.reward, "reward", where, shape=(n,), kind="float")
        _require(self.group, "group", where, shape=(n,), kind="int")
        if not torch.isfinite(self.reward).all():
            raise TokenPOError(f"{where}.reward holds NaN or inf in row {_first_row(~torch.isfinite(self.reward))}: mend the reward function")
        if (self.group < 0).any():
            raise TokenPOError(f"{where}.group holds a negative id in row {_first_row(self.group < 0)}: number the prompts from 0")
        object.__setattr__(self, "reward", _at_least_float32(self.reward))
        for name in _TOKEN_FIELDS:
            _seal(self, name, self.mask, where, optional=name != "old_logprob")
        if self.temperature is not None and not (self.temperature.masked_fill(~self.mask, 1.0) > 0).all():
            raise TokenPOError(f"{where}.temperature must be > 0 on every response token")
        if self.token_ids is not None:
            _require(self.token_ids, "token_ids", where, shape=tuple(self.mask.shape), kind="int")

    def __len__(self) -> int:
        return self.mask.shape[0]

    def rows(self, index: Any) -> Rollouts:
        """The rollouts at `index` (slice, int tensor [M] or bool tensor [N]), without checking them again."""
        return _sliced(self, index)


@dataclass(frozen=True, eq=False)
class Policy:
    """What the current policy says of the tokens in a batch.

    Args:
        logprob: [N, T] nats, log-probability of the sampled token; carries the graph.
        entropy: [N, T] nats, full-vocabulary entropy; read without gradient unless a stage says otherwise.
        entropy_drift: [N, T] nats, Σ_v p_v² (log p_v + H): what the sampled token's p (log p + H) is compared with to
            tell the sign of the entropy change of one logit-space step.
    """

    logprob: Tensor
    entropy: Tensor | None = None
    entropy_drift: Tensor | None = None

    def rows(self, index: Any) -> Policy:
        return _sliced(self, index)


@dataclass(frozen=True, eq=False)
class Credit:
    """Result of phase one. `signals` maps a signal's own value to its [N, T] tensor."""

    advantage: Tensor
    signals: Mapping[Any, Tensor] = dataclasses.field(default_factory=dict)

    def rows(self, index: Any) -> Credit:
        signals = {key: value[index] for key, value in self.signals.items()}
        return Credit(advantage=self.advantage[index], signals=signals)


@dataclass(frozen=True, eq=False)
class Batch:
    """What phase two sees: any rows of the rollouts with their credit and the current policy's view of them.

    Raises:
        TokenPOError: shapes that do not belong together, or a non-finite log-probability where mask is true.
    """

    rollouts: Rollouts
    credit: Credit
    policy: Policy

    def __post_init__(self) -> None:
        mask = self.rollouts.mask
        _require(self.credit.advantage, "advantage", "Credit", shape=tuple(mask.shape), kind="float")
        policy = object.__new__(Policy)
        for field in dataclasses.fields(Policy):
            object.__setattr__(policy, field.name, getattr(self.policy, field.name))
            _seal(policy, field.name, mask, "Policy", optional=field.name != "logprob")
        object.__setattr__(self, "policy", policy)

    @property
    def mask(self) -> Tensor:
        """[N, T] bool, true on response tokens."""
        return self.rollouts.mask

    def rows(self, index: Any) -> Batch:
        """The rows at `index`: whole rows only, so that sequence-level quantities stay what they are."""
        return _sliced(self, index)


@dataclass(frozen=True)
class Totals:
    """Denominators of one optimiser step over all micro-batches and ranks: given to the loss, never counted in it.

    Args:
        tokens: response tokens.
        sequences: rollouts with at least one response token.
        length: the constant that Dr. GRPO divides by: the longest response allowed (engines), or the longest there is.
    """

    tokens: float
    sequences: float
    length: float

    @staticmethod
    def of(rollouts: Rollouts, length: float | None = None) -> Totals:
        """Counts one whole optimiser step; `length` defaults to its longest response."""
        per_row = rollouts.mask.sum(1)
        tokens, sequences, longest = torch.stack([per_row.sum(), (per_row > 0).sum(), per_row.max()]).tolist()
        return Totals(tokens, sequences, longest if length is None else length)

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.tokens + other.tokens, self.sequences + other.sequences, max(self.length, other.length))


@dataclass(frozen=True, eq=False)
class Loss:
    """The scalar to minimise, and the [N, T] detached tensors that made it; reports draw these very tensors."""

    value: Tensor
    terms: Mapping[str, Tensor]


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _require(x: Any, name: str, where: str, *, shape: tuple[int, ...] | None = None, dim: int | None = None, kind: str) -> None:
    if not isinstance(x, Tensor):
        raise TokenPOError(f"{where}.{name} must be a tensor, got {type(x).__name__}")
    if (shape is not None and tuple(x.shape) != shape) or (dim is not None and x.dim() != dim):
        wanted = list(shape) if shape is not None else "[N, T]"
        raise TokenPOError(f"{where}.{name} has shape {list(x.shape)}, expected {wanted}")
    is_bool, is_float = x.dtype == torch.bool, x.is_floating_point()
    if not {"bool": is_bool, "float": is_float, "int": not is_bool and not is_float and not x.is_complex()}[kind]:
        raise TokenPOError(f"{where}.{name} has dtype {x.dtype}, expected {kind}: convert it before it enters")


def _seal(owner: Any, name: str, mask: Tensor, where: str, *, optional: bool) -> None:
    """Checks one [N, T] field, zeroes its padding and refuses a non-finite value on a response token."""
    x = getattr(owner, name)
    if x is None and optional:
        return
    _require(x, name, where, shape=tuple(mask.shape), kind="float")
    x = torch.where(mask, _at_least_float32(x), 0.0)
    # One reduction instead of a mask of N·T flags: a sum is finite exactly when no entry is NaN or inf (or it
    # overflows, which the second look tells apart).
    if not torch.isfinite(x.detach().sum()):
        bad = ~torch.isfinite(x.detach())
        if bad.any():
            row, column = (int(i) for i in bad.nonzero()[0])
            raise TokenPOError(
                f"{where}.{name} is {float(x[row, column])} at response token [{row}, {column}] where mask is true: "
                "find what produced it (overflow in the forward pass, or a wrong mask)"
            )
    object.__setattr__(owner, name, x)


def _first_row(bad: Tensor) -> int:
    return int(bad.nonzero()[0, 0])


def _sliced(value: Any, index: Any) -> Any:
    """The same kind of value with every tensor (or sliceable value) in it indexed; nothing is checked twice."""
    piece = object.__new__(type(value))
    for field in dataclasses.fields(value):
        x = getattr(value, field.name)
        if isinstance(x, Tensor):
            x = x[index]
        elif x is not None:
            x = x.rows(index)
        object.__setattr__(piece, field.name, x)
    return piece

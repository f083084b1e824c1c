"""Base classes of parts, the choices that make up an objective: one class for each slot.

A part is a frozen dataclass. It declares the inputs that it reads and the ranges of its fields; the `__call__` of its
base class documents arguments and result.
"""

import contextlib
import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, TypeAlias, cast, dataclass_transform

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ..facts import Fact
from ..ranges import Range, range_of, require
from ..types import EXTRA, Batch, Rollouts, Totals, Trust


@dataclass_transform(frozen_default=True)
class Part:
    """One choice of an objective. Each subclass becomes a frozen dataclass. Parts may hold parts; `walk` finds them.

    A field is checked if its annotation names a range of `core.ranges` or a class of parts. An attribute below that
    depends on a field is a property.

    Attributes:
        reads: names of the optional inputs that the part reads, fields of `Rollouts` and `Policy`.
        idle_on_policy: the part does nothing while the current policy is the old one.
        idle_as_sampled: the part does nothing while the old policy is the one that sampled.
        assumes_on_policy: the gradient is biased unless the current policy sampled the rollouts.
        corrects_rollout: the part weights a token by its ratio to the policy that sampled it.
        entropy_gradient: the part sends a gradient through `Policy.entropy`; engines then keep its graph.
        of_response: in phase two, a token's number depends on other tokens of its response.
    """

    # Typed Any, so that a subclass may use properties; unannotated, as an annotation would make them fields.
    reads = cast(Any, frozenset())
    idle_on_policy = cast(Any, False)
    idle_as_sampled = cast(Any, False)
    assumes_on_policy = cast(Any, False)
    corrects_rollout = cast(Any, False)
    entropy_gradient = cast(Any, False)
    of_response = cast(Any, False)

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)
        # Part's methods serve all subclasses. With a pair of its own, a class that is decorated again would fail.
        del cls.__setattr__, cls.__delattr__

    def __setattr__(self, name: str, *value: Any) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__name__} is frozen: declare {name} as a field of its class"
        )

    __delattr__ = __setattr__

    def __post_init__(self) -> None:
        """Checks the fields' ranges. A subclass that checks fields against each other calls this first."""
        self.require(**_ranges(type(self)))

    def require(self, **fields: Range) -> None:
        """Raises OutOfRange for a field outside its range."""
        for name, allowed in fields.items():
            require(type(self).__name__, name, getattr(self, name), allowed)


class Signal(Part):
    """A feature of the rollouts, computed once in phase one, on whole groups and without gradient."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N, T], finite where the mask is true."""
        raise NotImplementedError


# A call evaluates the surrogate over the whole optimiser step.
Look: TypeAlias = Callable[[], Trust]


class BatchSignal(Part):
    """A feature of the current policy over one whole optimiser step, computed by `Objective.observe` without gradient.

    Attributes:
        draws: the signal chooses tokens at random, with the generator passed to it.
    """

    draws = cast(Any, False)

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        """[N, T], finite where the mask is true, or bool; `trust()` evaluates the surrogate around the signal."""
        raise NotImplementedError


class Memory(Part):
    """Numbers carried from one rollout batch to the next, such as a running mean; the `Learner` stores them."""

    def start(self) -> Mapping[str, float]:
        """The numbers before the first rollout batch; may be empty."""
        raise NotImplementedError

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        """The numbers after a rollout batch, from all sampled rollouts in whole groups, also those not trained on."""
        raise NotImplementedError


class MemorySignal(Memory):
    """A memory that is also a signal of phase one."""

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        """[N, T], finite where the mask is true, from this batch and the numbers after the batch before it."""
        raise NotImplementedError


class Tokens(Protocol):
    """M sampled tokens of one group, and the distributions that they were drawn from."""

    row: Tensor  # [M], places in [N, T]
    column: Tensor
    target: Tensor  # [M], token ids
    hidden: Tensor  # [M, H], the final hidden states that predict them

    @property
    def chunk(self) -> int: ...  # number of distributions that may be kept at once

    def log_probabilities(self, at: Tensor) -> Tensor:
        """[len(at), V], at the temperature of sampling."""
        ...


class Sampler(Protocol):
    """The engine that sampled some rollouts, with the weights that it sampled with."""

    def tokens(self, rollouts: Rollouts) -> Iterator[Tokens]:
        """The tokens of one group after the other."""
        ...

    def prompt_logprob(self, rollouts: Rollouts) -> Tensor:
        """[N] nats, the mean log-probability of the tokens of the prompt after the first; 0 without any."""
        ...

    def greedy(self, rollouts: Rollouts) -> Tensor:
        """[N], the reward of a greedy response to the prompt."""
        ...

    def continued(self, rollouts: Rollouts, cuts: Tensor, count: int) -> Tensor:
        """[N, T], the mean reward of `count` continuations sampled at each cut; `cuts` is [N, T] bool."""
        ...

    def score(self, parts: Sequence[tuple[int, list[int]]]) -> Sequence[float]:
        """The rewards of (row, token ids in place of its response)."""
        ...


class Supplied(Part):
    """An input that few methods read, computed once per rollout batch by the engine that sampled.

    Attributes:
        gives: name of the input in `Rollouts.extra`.
        fact: its declaration.
        unread: the input says how the responses were sampled, and no number depends on it.
    """

    gives: ClassVar[str]
    fact: ClassVar[Fact]
    unread: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.reads = {*cls.reads, cls.gives} if isinstance(cls.reads, set | frozenset) else cls.reads
        EXTRA[cls.gives] = cls.fact
        super().__init_subclass__()

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        """The input, [N] or [N, T] as declared; by default the declaration's `formula` of each token's distribution."""
        if self.fact.formula is None:
            raise NotImplementedError
        table = torch.zeros_like(rollouts.old_logprob)
        for tokens in sampler.tokens(rollouts):
            for at in torch.arange(len(tokens.row), device=tokens.row.device).split(tokens.chunk):
                value = self.fact.formula(tokens.log_probabilities(at))
                table[tokens.row[at], tokens.column[at]] = value.to(table)
        return table


class Shaping(Part):
    """A bonus on the reward of a rollout."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N] in units of the reward."""
        raise NotImplementedError


class CreditStage(Part):
    """Phase one: turns the rewards of whole groups into advantages of tokens.

    Attributes:
        across_groups: the advantage of a rollout also depends on other groups than its own.
        columns: a number of columns of `Rollouts.rewards` that suits the stage; 0 if any does.
    """

    across_groups = cast(Any, False)
    columns = cast(Any, 0)

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """Advantage [N, T] from rollouts.reward [N] and the shaping's `bonus` [N]; any finite number on padding."""
        raise NotImplementedError


class SurrogateStage(Part):
    """Phase two: the objective of each token that is maximised, with its trust region.

    Attributes:
        own_slope: the surrogate is not a pessimistic clip; the laws about such a clip's slope are not checked.
    """

    own_slope = cast(Any, False)

    def __call__(self, batch: Batch) -> Trust:
        raise NotImplementedError


class Selection(Part):
    """Chooses tokens of each row independently; anything about other rows must come from a signal."""

    def __call__(self, batch: Batch) -> Tensor:
        """[N, T] bool."""
        raise NotImplementedError


class Weight(Part):
    """A factor ≥ 0 on the surrogate of a token, evaluated without gradient."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        """[N, T] ≥ 0."""
        raise NotImplementedError


class Penalty(Part):
    """A term of a token's loss, with its own coefficient.

    Attributes:
        follows_advantage: the penalty is 0 wherever the advantage is 0; engines may skip rows without advantage.
    """

    follows_advantage = cast(Any, False)

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        """[N, T], 0 on padding."""
        raise NotImplementedError


class Aggregate(Part):
    """The coefficient of each token's loss in the scalar loss.

    Attributes:
        share: a signal of phase one, or None; its [N, T] tensor is the third argument, declared as `*share: Tensor`.
    """

    share = cast(Any, None)

    def __call__(self, mask: Tensor, totals: Totals) -> Tensor | float:
        """A number, [N, 1] or [N, T]; `mask` has any rows of the step, so only a row's own length may be counted."""
        raise NotImplementedError


def walk(part: Any, *, inner_first: bool = False, outside: tuple[type, ...] = ()) -> Iterator[Part]:
    """Every part inside a value, itself included, but not `outside` these classes; outermost first, or inner first."""
    if isinstance(part, outside):
        return
    if isinstance(part, Part) and not inner_first:
        yield part
    if isinstance(part, tuple):
        for item in part:
            yield from walk(item, inner_first=inner_first, outside=outside)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            yield from walk(getattr(part, field.name), inner_first=inner_first, outside=outside)
    if isinstance(part, Part) and inner_first:
        yield part


def check_parts(whole: Any, owner: str) -> None:
    """Raises TokenPOError for a part inside a value that is not a value or has a field out of range."""
    for part in walk(whole):
        try:
            hash(part)  # parts are keys of signals and memories
        except TypeError as error:
            kind, remedy = type(part).__name__, "let its fields hold numbers, text, tuples and parts"
            raise TokenPOError(f"{owner}: {kind} is not a value ({error}): {remedy}") from error
        Part.__post_init__(part)  # the part's own __post_init__ may not have called it


@functools.cache
def _ranges(kind: type) -> Mapping[str, Range]:
    """The ranges of the fields whose annotation names a range or a kind of part."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else ()
    ranges: dict[str, Range | None] = {}
    for base in reversed(kind.__mro__):
        names = getattr(sys.modules.get(base.__module__), "__dict__", {})
        for name, hint in inspect.get_annotations(base).items():
            if name not in fields:
                continue
            # No range: the annotation uses a name that only type checkers or a function's own scope know.
            with contextlib.suppress(NameError, AttributeError):
                holder = SimpleNamespace(__annotations__={name: hint})
                ranges[name] = range_of(typing.get_type_hints(holder, names, include_extras=True)[name], Part)
    return {name: allowed for name, allowed in ranges.items() if allowed is not None}

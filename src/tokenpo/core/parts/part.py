"""Parts, the choices of an objective: frozen values that declare what they read and what their fields may hold.

A class for each slot says what a stage is called with, and what it returns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias, cast, dataclass_transform

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ...base.user_code import told
from ..ranges import Range, range_of, require
from ..types import Batch, Rollouts, Totals, Trust

# The declarations of a part: type, and its text in messages.
_FLAGS = (
    "idle_on_policy", "assumes_on_policy", "corrects_rollout", "entropy_gradient", "follows_advantage", "draws",
    "across_groups", "own_slope",
)  # fmt: skip
_DECLARATIONS = {"reads": ((set, frozenset), "a set of names")} | dict.fromkeys(_FLAGS, (bool, "True or False"))


@dataclass_transform(frozen_default=True)
class Part:
    """Makes one choice. A subclass is a frozen dataclass by itself. Parts may hold parts; `walk` finds them.

    A field whose annotation names a range of `core.ranges` or a kind of part holds nothing else. An attribute below
    that depends on a field is a property.

    Attributes:
        reads: set of the optional inputs that it reads, field names of `Rollouts` and `Policy`.
        idle_on_policy: it does nothing while the current policy is the old one; engines warn of runs with one update
            per rollout batch.
        assumes_on_policy: it takes the current policy for the one that sampled; engines warn of runs with more updates
            per rollout batch, which are biased.
        corrects_rollout: it weighs a token against the policy that sampled it; engines add no second correction.
        entropy_gradient: it sends a gradient through `Policy.entropy`, whose graph engines then keep.
    """

    # Any, so that a property may take their place; without an annotation, which would make fields of them.
    reads = cast(Any, frozenset())
    idle_on_policy = cast(Any, False)
    assumes_on_policy = cast(Any, False)
    corrects_rollout = cast(Any, False)
    entropy_gradient = cast(Any, False)

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)
        # Part has one for all: a class with the decorator above it is given its own, which must not be there already.
        del cls.__setattr__, cls.__delattr__

    def __setattr__(self, name: str, *value: Any) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__name__} is frozen: declare {name} as a field of its class"
        )

    __delattr__ = __setattr__

    def __post_init__(self) -> None:
        """A part whose fields must agree with each other extends this, and calls it first.

        Raises:
            OutOfRange: a field outside its annotation.
        """
        self.require(**_ranges(type(self)))

    def require(self, **fields: Range) -> None:
        """Refuses a field outside its range.

        Raises:
            OutOfRange: naming the part's type, the field, its value and the range.
        """
        for name, allowed in fields.items():
            require(type(self).__name__, name, getattr(self, name), allowed)


class Signal(Part):
    """A feature of the rollouts, computed in phase one on whole groups without gradient."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N, T], finite where the mask is true."""
        raise NotImplementedError


# The surrogate of a whole optimiser step, evaluated when it is called.
Look: TypeAlias = Callable[[], Trust]


class BatchSignal(Part):
    """A feature of the current policy over one whole optimiser step, computed by `Objective.observe` without gradient.

    An objective that holds one has scope "batch".

    Attributes:
        draws: it chooses tokens at random, with the generator it is given.
    """

    draws = cast(Any, False)

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        """[N, T], finite where the mask is true, or bool. `trust()` evaluates the surrogate, except for a signal inside
        the surrogate. Signals that this one holds are in the batch already."""
        raise NotImplementedError


class Memory(Part):
    """Numbers that go from one rollout batch to the next, such as a running mean; the `Learner` holds them."""

    def start(self) -> Mapping[str, float]:
        """The numbers before the first rollout batch; may be empty."""
        raise NotImplementedError

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        """The numbers after a rollout batch, from everything that was drawn, in whole groups."""
        raise NotImplementedError


class MemorySignal(Memory):
    """A memory that is also a signal of phase one."""

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        """[N, T], finite where the mask is true, from this batch and the numbers that earlier ones left."""
        raise NotImplementedError


class Shaping(Part):
    """A bonus on the reward of a rollout."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N] in units of the reward."""
        raise NotImplementedError


class CreditStage(Part):
    """Phase one: rewards of whole groups become advantages of tokens.

    Attributes:
        across_groups: the credit of a rollout also depends on other groups than its own.
        columns: fewest columns of `Rollouts.rewards` that it accepts, if it reads them.

    A credit stage that is also a `Memory` is called with a third argument, the numbers that earlier batches left, and
    declares it as `*numbers: Mapping[str, float]`.
    """

    across_groups = cast(Any, False)
    columns = cast(Any, 1)

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """Advantage [N, T] from rollouts.reward [N] and the shaping's `bonus` [N]; padding may hold anything finite."""
        raise NotImplementedError


class SurrogateStage(Part):
    """Phase two: the maximised objective of a token inside its trust region.

    Attributes:
        own_slope: it is not the pessimistic clip, whose slope is ratio · advantage between its bounds and 0 beyond.
    """

    own_slope = cast(Any, False)

    def __call__(self, batch: Batch) -> Trust:
        raise NotImplementedError


class Weight(Part):
    """A factor ≥ 0 on the surrogate of a token, evaluated without gradient.

    It commutes with the pessimistic minimum, so it is also a factor on the advantage.
    """

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        """[N, T] ≥ 0."""
        raise NotImplementedError


class Penalty(Part):
    """A term of a token's loss, with its own coefficient.

    Attributes:
        follows_advantage: it is 0 wherever the advantage is 0; engines may then skip such rows.
    """

    follows_advantage = cast(Any, False)

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        """[N, T], 0 on padding."""
        raise NotImplementedError


class Aggregate(Part):
    """The coefficient of each token's loss in the scalar.

    Attributes:
        share: a signal of phase one: what more than a row's own length decides.

    An aggregate with a `share` is called with a third argument, the signal's [N, T] tensor, and declares it as
    `*share: Tensor`.
    """

    share = cast(Any, None)

    def __call__(self, mask: Tensor, totals: Totals) -> Tensor | float:
        """A number, [N, 1] or [N, T]; of a mean it sums to about 1 over the step.

        Only a row's own length may be counted here.
        """
        raise NotImplementedError


def walk(part: Any, *, inner_first: bool = False, outside: tuple[type, ...] = ()) -> Iterator[Part]:
    """Every part inside a value, itself included, outermost first; with `inner_first` a part follows those it holds.

    Args:
        outside: kinds of part to leave out, with all they hold.
    """
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
    """Checks every part inside a value; messages start with `owner`.

    Raises:
        TokenPOError: a field holds no value, a declaration has the wrong type, or a field is outside its annotation.
    """
    for part in walk(whole):
        _check_value(part, owner)
        _check_declarations(part, owner)
        Part.__post_init__(part)  # a __post_init__ of the part's own may have left it out


def _check_value(part: Part, owner: str) -> None:
    """Refuses what cannot be a key: parts are compared and pickled."""
    try:
        hash(part)
    except TypeError as error:
        raise TokenPOError(
            f"{owner}: {type(part).__name__} is no value ({error}): let its fields hold numbers, text, tuples and parts"
        ) from error


def _check_declarations(part: Part, owner: str) -> None:
    """Refuses, for one, a method where a property was meant: it would always be true."""
    kind = type(part).__name__
    for name, (wanted, words) in _DECLARATIONS.items():
        try:
            value = getattr(part, name, False)
        except TokenPOError:
            raise
        except Exception as error:
            raise TokenPOError(f"{owner}: {name} of {kind} raised {told(error)}") from error
        if not isinstance(value, wanted):
            remedy = f"let it be {words}, or a property that returns it"
            raise TokenPOError(f"{owner}: {name} of {kind} is a {type(value).__name__}: {remedy}")


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
            # Says nothing: a name that only type checkers know, or of a function's own scope.
            with contextlib.suppress(NameError, AttributeError):
                one = SimpleNamespace(__annotations__={name: hint})
                ranges[name] = range_of(typing.get_type_hints(one, names, include_extras=True)[name], Part)
    return {name: allowed for name, allowed in ranges.items() if allowed is not None}

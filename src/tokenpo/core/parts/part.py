"""What every named choice of an objective is: a frozen value that declares what it reads and what it may hold."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from ...base.errors import TokenPOError
from ...base.user_code import told
from ..ranges import Range, range_of, require

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..types import Batch, Rollouts, Trust

# What a part says of itself, in the words of a message.
_FLAGS = (
    "idle_on_policy", "assumes_on_policy", "corrects_rollout", "entropy_gradient", "follows_advantage", "draws",
    "across_groups", "own_slope",
)  # fmt: skip
_SAYS = {"reads": ((set, frozenset), "a set of names")} | dict.fromkeys(_FLAGS, (bool, "True or False"))


class Part:
    """A frozen dataclass that makes one choice, and declares what it is. Parts may hold parts; `walk` finds them.

    A field whose annotation names a range of `core.ranges` or a kind of part holds nothing else. What depends on a
    field is a property in place of the attribute here.

    Attributes:
        reads: optional inputs it reads, a set of field names of `Rollouts` and `Policy`.
        idle_on_policy: true where it does nothing as long as the current policy is the old one, so that a run with one
            update per rollout would never feel it; engines warn.
        assumes_on_policy: true where it takes the current policy for the one that sampled and corrects for nothing, so
            that further updates on the same rollouts are biased; engines warn.
        corrects_rollout: true where it weighs a token against the policy that sampled it, so that a further correction
            for that policy would count it twice; engines add none.
        entropy_gradient: true where it sends a gradient through `Policy.entropy`; engines then keep its graph.
    """

    # Any, so that a property may take their place.
    reads: Any = frozenset()
    idle_on_policy: Any = False
    assumes_on_policy: Any = False
    corrects_rollout: Any = False
    entropy_gradient: Any = False

    def __post_init__(self) -> None:
        """Where fields must agree with each other, a part extends this, and calls it first.

        Raises:
            OutOfRange: a field holds what its annotation does not name.
        """
        self.require(**_declared(type(self)))

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
Look: TypeAlias = "Callable[[], Trust]"


class BatchSignal(Part):
    """A feature that also depends on the current policy over one whole optimiser step, computed without gradient.

    An objective that holds one has scope "batch": before its micro-batches are evaluated, `Objective.observe` must see
    them all at once.

    Attributes:
        draws: true where it chooses tokens at random, with the generator it is given.
    """

    draws: Any = False

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator | None) -> Tensor:
        """[N, T], finite where the mask is true, or bool where it marks tokens. `trust()` evaluates the surrogate; a
        signal inside the surrogate cannot ask for it. Signals that this one holds are in the batch already."""
        raise NotImplementedError


class Memory(Part):
    """A few numbers that go from one rollout batch to the next: a controller's coefficient, a running mean.

    The numbers are values outside the part, so that engines can put them into a checkpoint as they are.
    """

    def start(self) -> Mapping[str, float]:
        """The numbers before the first rollout batch; empty where nothing is known yet."""
        raise NotImplementedError

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        """The numbers after a rollout batch: everything that was drawn, in whole groups."""
        raise NotImplementedError


class MemorySignal(Memory):
    """A memory that phase one shows as a signal."""

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        """[N, T], finite where the mask is true, from this batch and the numbers that earlier ones left."""
        raise NotImplementedError


def walk(part: Any, *, inner_first: bool = False, outside: tuple[type, ...] = ()) -> Iterator[Part]:
    """Every part inside a value, itself included, outermost first; `inner_first` gives a part after those it holds.

    Args:
        outside: kinds of part that are left out, with all they hold.
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
    """Every part inside a value, in the words of its owner.

    Raises:
        TokenPOError: a part that is no frozen value; what it says of itself and is no answer; a field that holds what
            its annotation does not name.
    """
    for part in walk(whole):
        _check_value(part, owner)
        _check_words(part, owner)
        Part.__post_init__(part)  # which one with a __post_init__ of its own may have left out


def _check_value(part: Part, owner: str) -> None:
    """Signals are kept by the parts that made them, objectives compared and sent to workers, and `walk` finds what
    stands in fields: all take frozen dataclasses."""
    kind = type(part).__name__
    if _hides(part):
        raise TokenPOError(
            f"{owner}: {kind} is no frozen dataclass that compares by its fields alone: put "
            "@dataclasses.dataclass(frozen=True), without eq=False, above its class, and what it holds into fields"
        )
    try:
        hash(part)
    except TypeError as error:
        raise TokenPOError(
            f"{owner}: {kind} is no value ({error}): let its fields hold numbers, text, tuples and parts"
        ) from error


def _hides(part: Part) -> bool:
    """It is no frozen dataclass, or more than one: a subclass that keeps what no field has, and no equality sees."""
    parameters = getattr(part, "__dataclass_params__", None)
    if parameters is None or not (parameters.frozen and parameters.eq):
        return True
    fields = {field.name for field in dataclasses.fields(part)}  # pyright: ignore[reportArgumentType]
    held = vars(part) if hasattr(part, "__dict__") else ()
    return any(
        not isinstance(getattr(type(part), name, None), functools.cached_property) for name in set(held) - fields
    )


def _check_words(part: Part, owner: str) -> None:
    """What it says of itself, which engines rely on: a method in place of an answer would always be true."""
    kind = type(part).__name__
    for name, (wanted, words) in _SAYS.items():
        try:
            said = getattr(part, name, False)
        except TokenPOError:
            raise
        except Exception as error:
            raise TokenPOError(f"{owner}: {name} of {kind} raised {told(error)}") from error
        if not isinstance(said, wanted):
            remedy = f"let it be {words}, or a property that returns it"
            raise TokenPOError(f"{owner}: {name} of {kind} is a {type(said).__name__}: {remedy}")


@functools.cache
def _declared(kind: type) -> Mapping[str, Range]:
    """What the fields may hold whose annotation names a range or a kind of part."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else ()
    found: dict[str, Range | None] = {}
    for base in reversed(kind.__mro__):
        names = getattr(sys.modules.get(base.__module__), "__dict__", {})
        for name, hint in inspect.get_annotations(base).items():
            if name not in fields:
                continue
            # Says nothing: a name that only type checkers know, or of a function's own scope.
            with contextlib.suppress(NameError, AttributeError):
                one = SimpleNamespace(__annotations__={name: hint})
                found[name] = range_of(typing.get_type_hints(one, names, include_extras=True)[name], Part)
    return {name: allowed for name, allowed in found.items() if allowed is not None}

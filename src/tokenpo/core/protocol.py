"""Calls an objective's parts and checks each result against the part's protocol; errors name the part.

Types and shapes are checked, numbers are not read. A part must not write into its arguments, which later updates read
again; torch's version counter of each tensor shows whether it did.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MissingInput, TokenPOError
from ..base.memory import is_shortage
from ..base.user_code import summary_of
from .parts import Memory, Part
from .types import Batch, Policy, Rollouts, Trust


@dataclass(frozen=True)
class Answers:
    """Calls the parts of an objective.

    Args:
        name: the objective's name, for messages.

    Raises:
        TokenPOError: by each method, naming objective, slot and part: the part raised, returned something that breaks
            its protocol, or changed an argument in place.
    """

    name: str

    def tensor(self, slot: str, part: Any, like: Tensor, *given: Any) -> Tensor:
        """A tensor of the shape of `like`: [N] or [N, T]."""
        x = self.result(slot, part, part, *given)
        self._shaped(x, like, slot, part)
        return x

    def trust(self, part: Any, mask: Tensor, *given: Any) -> Trust:
        """The result of a surrogate."""
        x = self.result("surrogate", part, part, *given)
        if not isinstance(x, Trust):
            raise self._wrong(x, "surrogate", part, "a Trust")
        for field in ("value", "ratio", "clipped"):
            self._shaped(getattr(x, field), mask, f"Trust.{field} of surrogate", part)
        for field in ("lower", "upper"):
            if not isinstance(bound := getattr(x, field), (float, int)):
                self._shaped(bound, mask, f"Trust.{field} of surrogate", part, "a number or ")
        if x.clipped.dtype != torch.bool:
            raise self._wrong(x.clipped.dtype, "Trust.clipped of surrogate", part, "a tensor of torch.bool")
        return x

    def coefficient(self, part: Any, mask: Tensor, *given: Any) -> Tensor | float:
        """A number, [N, 1] or [N, T], from an aggregate."""
        x, (n, t) = self.result("aggregate", part, part, *given), mask.shape
        if isinstance(x, (float, int)) or (isinstance(x, Tensor) and x.shape in ((n, 1), (n, t), ())):
            return x
        raise self._wrong(x, "aggregate", part, f"a number or a tensor of shape [N, 1] or [N, T] = {[n, t]}")

    def numbers(self, part: Memory, call: str, *given: Any) -> Mapping[str, float]:
        """The finite numbers by name, fit for a checkpoint, that a memory's "start" or "after" returns."""
        x = self.result("memory", part, getattr(part, call), *given)
        if isinstance(x, Mapping) and all(
            isinstance(name, str) and isinstance(value, (float, int)) and math.isfinite(value)
            for name, value in x.items()
        ):
            return x
        raise self._wrong(x, "memory", part, "a dict of finite Python numbers by name", call)

    def result(self, slot: str, part: Any, call: Callable[..., Any], *given: Any) -> Any:
        """The result of `call`, a method of the part."""
        versions = [(name, x, x._version) for name, x in _tensors(given)]
        try:
            x = call(*given)
        except MissingInput as error:
            if not error.name:
                raise
            # Declared inputs were checked before any part was called.
            raise MissingInput(f"objective {self.name}: {_undeclared(error, part)}") from error
        except TokenPOError:
            raise
        except (Exception, SystemExit) as error:
            if is_shortage(error):  # engines recognise a shortage of memory by its type
                raise
            hint = _not_there(error, given)
            raise TokenPOError(f"objective {self.name}: {slot} {part!r} raised {summary_of(error)}{hint}") from error
        if changed := [name for name, tensor, version in versions if tensor._version != version]:
            names = ", ".join(name if isinstance(name, str) else f"signal {name!r}" for name in changed)
            raise TokenPOError(
                f"objective {self.name}: {slot} {part!r} changed {names} in place, for whoever reads it next too: "
                "let it work on a clone()"
            )
        return x

    def _shaped(self, x: Any, like: Tensor, slot: str, part: Any, also: str = "") -> None:
        if not (isinstance(x, Tensor) and x.shape == like.shape):
            axes = "[N]" if like.dim() == 1 else "[N, T]"
            raise self._wrong(x, slot, part, f"{also}a tensor of shape {axes} = {list(like.shape)}")

    def _wrong(self, x: Any, slot: str, part: Any, wanted: str, call: str = "__call__") -> TokenPOError:
        place = f"objective {self.name}: {slot} {part!r}"
        return TokenPOError(f"{place} returned {_described(x)}: let its {call} return {wanted}")


def _tensors(given: tuple[Any, ...]) -> Iterator[tuple[Any, Tensor]]:
    """(name, tensor) for each tensor in a part's arguments; a signal's tensor has the signal itself as its name."""
    for x in given:
        if isinstance(x, Batch):
            advantage = {"the advantage": x.credit.advantage}
            named: tuple[Mapping[Any, Any], ...] = vars(x.rollouts), vars(x.policy), advantage, x.credit.signals
        else:
            named = (vars(x) if isinstance(x, Rollouts | Trust) else {"an argument": x},)
        for values in named:
            yield from ((name, value) for name, value in values.items() if isinstance(value, Tensor))


def _undeclared(error: MissingInput, part: Part) -> str:
    """The message's text about the part, this one or one inside it, that reads an undeclared input."""
    owners = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
    *_, reader = (part, *(owner for owner in owners if isinstance(owner, Part)))
    names = ", ".join(f'"{name}"' for name in sorted({*reader.reads, error.name}))
    return f"{reader!r} reads {error.name}, which it does not declare: put reads = {{{names}}} into its class"


def _not_there(error: BaseException, given: tuple[Any, ...]) -> str:
    """The message's hint about absent inputs that the raising code mentions, as their None may be the cause."""
    values = [value for x in given for value in ((x.rollouts, x.policy) if isinstance(x, Batch) else (x,))]
    absent = {k for x in values if isinstance(x, (Rollouts, Policy)) for k, field in vars(x).items() if field is None}
    named = {name for frame, _ in traceback.walk_tb(error.__traceback__) for name in frame.f_code.co_names}
    names = ", ".join(sorted(absent & named))
    return f"; {names} is None there, as no part declares it: declare it in reads" if names else ""


def _described(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"shape {list(x.shape)}"
    if isinstance(x, Mapping):
        return repr(dict(x))
    return str(x) if x is None or isinstance(x, torch.dtype) else f"a {type(x).__name__}"

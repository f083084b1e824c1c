"""What the parts of an objective answer, held to their protocol: an error names the part, not an operation of torch.

Every loss asks, so kinds and shapes are compared and no number is looked at. A part that writes into what it was given
would change the credit for every later update: torch counts the writes to a tensor, and the count is compared.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MissingInput, TokenPOError
from ..base.memory import is_shortage
from ..base.user_code import told
from .parts import Memory, Part
from .types import Batch, Policy, Rollouts, Trust

_AXES = {1: "[N]", 2: "[N, T]"}
_TRUST = {field: f"Trust.{field} of surrogate" for field in ("value", "ratio", "lower", "upper", "clipped")}


@dataclass(frozen=True)
class Answers:
    """Asks parts what their protocol has; `slot` is what a part is to the objective.

    Args:
        name: of the objective.

    Raises:
        TokenPOError: by each method, naming objective, slot and part: what the part raised and where, or what it
            answered in place of what its protocol has.
    """

    name: str

    def tensor(self, slot: str, part: Any, like: Tensor, *given: Any) -> Tensor:
        """A tensor of the shape of `like`: [N] or [N, T]."""
        x = self.asked(slot, part, part, *given)
        self._shaped(x, like, slot, part)
        return x

    def trust(self, part: Any, mask: Tensor, *given: Any) -> Trust:
        """What a surrogate says of every token."""
        x = self.asked("surrogate", part, part, *given)
        if not isinstance(x, Trust):
            raise self._wrong(x, "surrogate", part, "a Trust")
        for field in ("value", "ratio", "clipped"):
            self._shaped(getattr(x, field), mask, _TRUST[field], part)
        for field in ("lower", "upper"):
            if not isinstance(bound := getattr(x, field), (float, int)):
                self._shaped(bound, mask, _TRUST[field], part, "a number or ")
        if x.clipped.dtype != torch.bool:
            raise self._wrong(x.clipped.dtype, _TRUST["clipped"], part, "a tensor of torch.bool")
        return x

    def coefficient(self, part: Any, mask: Tensor, *given: Any) -> Tensor | float:
        """A number, [N, 1] or [N, T]."""
        x, (n, t) = self.asked("aggregate", part, part, *given), mask.shape
        if isinstance(x, (float, int)) or (isinstance(x, Tensor) and x.shape in ((n, 1), (n, t), ())):
            return x
        raise self._wrong(x, "aggregate", part, f"a number or a tensor of shape [N, 1] or [N, T] = {[n, t]}")

    def numbers(self, part: Memory, call: str, *given: Any) -> Mapping[str, float]:
        """What a memory holds after `call`, "start" or "after": finite numbers by name, as a checkpoint keeps them."""
        x = self.asked("memory", part, getattr(part, call), *given)
        if isinstance(x, Mapping) and all(isinstance(name, str) and _is_finite(value) for name, value in x.items()):
            return x
        raise self._wrong(x, "memory", part, "a dict of finite Python numbers by name", call)

    def asked(self, slot: str, part: Any, call: Callable[..., Any], *given: Any) -> Any:
        """What `call`, of the part, gives."""
        tensors = _given(given)
        before = [x._version for x in tensors]
        try:
            x = call(*given)
        except MissingInput as error:
            if not error.name:
                raise
            # What is declared is there before any part is asked.
            raise MissingInput(f"objective {self.name}: {_undeclared(error, part)}") from error
        except TokenPOError:
            raise
        except (Exception, SystemExit) as error:
            if is_shortage(error):  # what a machine lacks is no mistake of a part's, and engines know it by its kind
                raise
            hint = _not_there(error, given)
            raise TokenPOError(f"objective {self.name}: {slot} {part!r} raised {told(error)}{hint}") from error
        if [x._version for x in tensors] != before:
            changed = _names(given, [x for x, count in zip(tensors, before, strict=True) if x._version != count])
            raise TokenPOError(
                f"objective {self.name}: {slot} {part!r} changed {changed} in place, for whoever reads it next too: "
                "let it work on a clone()"
            )
        return x

    def _shaped(self, x: Any, like: Tensor, slot: str, part: Any, also: str = "") -> None:
        if not (isinstance(x, Tensor) and x.shape == like.shape):
            wanted = f"{also}a tensor of shape {_AXES[like.dim()]} = {list(like.shape)}"
            raise self._wrong(x, slot, part, wanted)

    def _wrong(self, x: Any, slot: str, part: Any, wanted: str, call: str = "__call__") -> TokenPOError:
        place = f"objective {self.name}: {slot} {part!r}"
        return TokenPOError(f"{place} returned {_seen(x)}: let its {call} return {wanted}")


def _given(given: tuple[Any, ...]) -> list[Tensor]:
    """The tensors that a part is given."""
    found: list[Any] = []
    for x in given:
        if isinstance(x, Batch):
            found += vars(x.rollouts).values()
            found += vars(x.policy).values()
            found += (x.credit.advantage, *x.credit.signals.values())
        elif isinstance(x, Rollouts | Trust):
            found += vars(x).values()
        else:
            found.append(x)
    return [x for x in found if isinstance(x, Tensor)]


def _names(given: tuple[Any, ...], changed: list[Tensor]) -> str:
    """What the changed tensors are called."""
    names = {}
    for x in given:
        if isinstance(x, Batch):
            names |= {id(value): name for part in (x.rollouts, x.policy) for name, value in vars(part).items()}
            names |= {id(value): f"signal {key!r}" for key, value in x.credit.signals.items()}
            names[id(x.credit.advantage)] = "the advantage"
        elif isinstance(x, Rollouts | Trust):
            names |= {id(value): name for name, value in vars(x).items()}
    return ", ".join(names.get(id(x), "an argument") for x in changed)


def _undeclared(error: MissingInput, part: Part) -> str:
    """What the part, or one that it holds, reads without saying so."""
    frames = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
    *_, reader = (part, *(one for one in frames if isinstance(one, Part)))
    names = ", ".join(f'"{name}"' for name in sorted({*reader.reads, error.name}))
    return f"{reader!r} reads {error.name}, which it does not declare: put reads = {{{names}}} into its class"


def _not_there(error: BaseException, given: tuple[Any, ...]) -> str:
    """The absent inputs that are named in the code that raised: None, on which it may have stumbled."""
    values = [one for x in given for one in ((x.rollouts, x.policy) if isinstance(x, Batch) else (x,))]
    absent = {k for x in values if isinstance(x, (Rollouts, Policy)) for k, field in vars(x).items() if field is None}
    named = {name for frame, _ in traceback.walk_tb(error.__traceback__) for name in frame.f_code.co_names}
    names = ", ".join(sorted(absent & named))
    return f"; {names} is None there, as no part declares it: declare it in reads" if names else ""


def _is_finite(x: Any) -> bool:
    return isinstance(x, (float, int)) and math.isfinite(x)


def _seen(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"shape {list(x.shape)}"
    if isinstance(x, Mapping):
        return repr(dict(x))
    return "None" if x is None else str(x) if isinstance(x, torch.dtype) else f"a {type(x).__name__}"

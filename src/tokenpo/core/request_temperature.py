"""An adaptive temperature as plain numbers in a request to vLLM (`SamplingParams.extra_args`), also over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..base.errors import MissingInput
from .head.softmax import block_rows, entropy_of, softmax_parts
from .parts import AdaptiveTemperature
from .parts.entropy import EntropyScale
from .ranges import FINITE, require

if TYPE_CHECKING:
    from torch import Tensor

    from .objective import Objective, State

PROCESSOR = "tokenpo.hosts.vllm.processor:AdaptiveTemperatureProcessor"

PREFIX = "tokenpo_"
_RULE = ("tau", "quantile", "released_sign")
KEYS = tuple(PREFIX + name for name in (*_RULE, *EntropyScale._fields))


class TemperatureRule(Protocol):
    """Temperature [M] of the next token from the entropy [M] (nats) of its logits at the base temperature."""

    def __call__(self, entropy: Tensor, base: float, /) -> Tensor: ...


@dataclass(frozen=True)
class Heat:
    """The temperature rule of an objective with the entropy scale of an earlier rollout batch."""

    rule: AdaptiveTemperature
    scale: EntropyScale

    def __call__(self, entropy: Tensor) -> Tensor:
        """T_t / T [M] of tokens, from the entropy [M] (nats) of their logits at the base temperature T."""
        return self.rule(entropy, 1.0, self.scale._asdict())

    def on(self, device: torch.device | str) -> Heat:
        """A copy with its scale on a device, so that a call does not wait for the device."""
        scale = torch.tensor(self.scale, dtype=torch.float64).to(device)
        return Heat(self.rule, EntropyScale(*scale.unbind()))


def extra_args(objective: Objective, state: State) -> dict[str, float]:
    """The numbers for a request, from the memories' state; empty without a rule, or before the first rollout batch."""
    rule = objective.temperature
    scale = {} if rule is None else state[rule]
    if rule is None or not scale:
        return {}
    numbers = {**{name: getattr(rule, name) for name in _RULE}, **scale}
    return {PREFIX + name: float(x) for name, x in numbers.items()}


def read(given: Mapping[str, Any] | None) -> Heat | None:
    """The adaptive temperature in a request's extra_args; None without any of our keys, TokenPOError for bad ones."""
    ours = {key: value for key, value in (given or {}).items() if isinstance(key, str) and key.startswith(PREFIX)}
    if not ours:
        return None
    if ours.keys() != set(KEYS):
        raise MissingInput(
            f"extra_args of a request to vLLM hold {', '.join(sorted(ours))} in place of {', '.join(KEYS)}: "
            "give what tokenpo.hosts.vllm.extra_args(objective, state) returns, whole"
        )
    for key, value in ours.items():
        require("extra_args of a request", key, value, FINITE)
    x = {key.removeprefix(PREFIX): float(value) for key, value in ours.items()}
    rule = AdaptiveTemperature(x["tau"], x["quantile"], bool(x["released_sign"]))
    return Heat(rule, EntropyScale(*(x[name] for name in EntropyScale._fields)))


def factors(logits: Tensor, which: Tensor, heats: Mapping[int, Heat], base: Tensor | None = None) -> Tensor:
    """T_t / T of each row, [M] float32 (float64 for float64 logits); exactly 1 for a row without a heat.

    In logits [M, V] -inf excludes a token. `which` [M] is the number of each row's heat in `heats`, or another for
    none; `base` [M] the temperature T of each row, None if the logits are already divided by it.
    """
    step = block_rows(logits.shape[1], logits.device)
    pieces = []
    for start in range(0, logits.shape[0], step):
        rows = slice(start, start + step)
        scale = 1.0 if base is None else base[rows].to(logits.dtype).reciprocal().unsqueeze(-1)
        entropy = entropy_of(softmax_parts(logits[rows], scale))
        factor = torch.ones_like(entropy)
        for number, heat in heats.items():
            factor = torch.where(which[rows] == number, heat(entropy), factor)
        pieces.append(factor)
    return torch.cat(pieces) if pieces else logits.new_ones(0)

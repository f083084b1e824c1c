"""The adaptive temperature on its way to the sampler: from the driver's memory to each request.

driver  -> TokenPOTrainer._next_train_batch puts FIELD into the prompts of a step
worker  -> the agent loop below moves it into sampling_params["extra_args"], flat keys
server  -> a logits processor applies it (vLLM: tokenpo.adapters.vllm)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ...objective import Objective, State
from ...stages import AdaptiveTemperature

FIELD = "tokenpo_temperature"
LOOP = "tokenpo_single_turn"  # our agent loop in verl's table
PREFIX = "tokenpo_"
PROCESSOR = "tokenpo.adapters.vllm.processor:AdaptiveTemperatureProcessor"
_SETTINGS = ("tau", "quantile", "released_sign")


def told(objective: Objective, state: State) -> str | None:
    """What the sampler of the next step is told, as JSON of flat numbers; None where it is to sample as ever."""
    rule = objective.temperature
    numbers = {} if rule is None else state[rule]
    if rule is None or not numbers:
        return None
    settings = {name: float(getattr(rule, name)) for name in _SETTINGS}
    return json.dumps({PREFIX + name: float(x) for name, x in {**settings, **numbers}.items()})


def rule_of(extra: Mapping[str, float]) -> Callable[[Tensor, float], Tensor]:
    """Temperature [M] from entropies [M] at the base temperature, as the flat numbers describe it."""
    flat = {name.removeprefix(PREFIX): value for name, value in extra.items() if name.startswith(PREFIX)}
    settings: dict[str, Any] = {name: flat.pop(name) for name in _SETTINGS}
    rule = AdaptiveTemperature(settings["tau"], settings["quantile"], bool(settings["released_sign"]))
    return lambda entropy, base: rule(entropy, base, flat)


def with_extra_args(sampling_params: Mapping[str, Any], found: str) -> dict[str, Any]:
    """A copy of a request's sampling parameters that carries the numbers; sessions share theirs."""
    extra = {**(sampling_params.get("extra_args") or {}), **json.loads(found)}
    return {**sampling_params, "extra_args": extra}

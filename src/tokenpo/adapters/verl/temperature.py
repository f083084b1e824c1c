"""The adaptive temperature on its way to the sampler: from the driver's memory to each request.

driver  -> TokenPOTrainer._next_train_batch puts FIELD into the prompts of a step
worker  -> the agent loop below moves it into sampling_params["extra_args"], flat keys
server  -> a logits processor applies it (vLLM: tokenpo.adapters.vllm)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...objective import Objective, State
from ..vllm import PROCESSOR, extra_args

__all__ = ["FIELD", "LOOP", "PROCESSOR", "told", "with_extra_args"]

FIELD = "tokenpo_temperature"
LOOP = "tokenpo_single_turn"  # our agent loop in verl's table


def told(objective: Objective, state: State) -> str | None:
    """What the sampler of the next step is told, as JSON of flat numbers; None where it is to sample as ever."""
    found = extra_args(objective, state)
    return json.dumps(found) if found else None


def with_extra_args(sampling_params: Mapping[str, Any], found: str) -> dict[str, Any]:
    """A copy of a request's sampling parameters that carries the numbers; sessions share theirs."""
    extra = {**(sampling_params.get("extra_args") or {}), **json.loads(found)}
    return {**sampling_params, "extra_args": extra}

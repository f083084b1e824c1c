"""The agent loop that moves the adaptive temperature's numbers from a step's prompts into sampling_params."""

# pyright: reportMissingImports=false
import json
from typing import Any

from verl.experimental.agent_loop.agent_loop import register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.utils import tensordict_utils as tu

from ...base.errors import Unsupported
from ...core.objective import Objective
from .layout import column
from .settings import LOOP, LOOPS

FIELD = "tokenpo_temperature"


def use_loop(objective: Objective, batch: Any) -> None:
    """Replaces the agent loop that prompts name by ours: verl prefers a data set's column to its default loop."""
    if objective.temperature is None or "agent_name" not in batch:
        return
    for name in column(batch["agent_name"]):
        if name not in LOOPS:
            raise Unsupported(
                f"{objective.name} adapts the temperature from token to token, which verl's agent loop {name} in the "
                f"data's column agent_name cannot: set it to {LOOP}, or +algorithm.tokenpo.options.tau=0"
            )
    tu.assign_non_tensor_data(batch, "agent_name", LOOP)


@register(LOOP)
class TokenPOSingleTurn(SingleTurnAgentLoop):
    """verl's single-turn agent loop, which passes the numbers on."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        numbers = kwargs.pop(FIELD, None)
        if numbers is not None:
            extra = {**(sampling_params.get("extra_args") or {}), **json.loads(numbers)}
            sampling_params = {**sampling_params, "extra_args": extra}  # a copy, as sessions share the original
        return await super().run(sampling_params, **kwargs)

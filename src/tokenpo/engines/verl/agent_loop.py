"""verl's single-turn agent loop, which passes the statistics of the adaptive temperature on to the server."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from .temperature import FIELD, LOOP, with_extra_args


@register(LOOP)
class TokenPOSingleTurn(SingleTurnAgentLoop):
    """`tokenpo_single_turn`: one prompt, one response, each token at its own temperature."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        numbers = kwargs.pop(FIELD, None)
        if numbers is not None:
            sampling_params = with_extra_args(sampling_params, numbers)
        return await super().run(sampling_params, **kwargs)

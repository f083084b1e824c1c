"""An agent loop that gives a response in two outputs, as if its context had been compacted between them."""

from typing import Any

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop


class Halves(SingleTurnAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        whole = await super().run(sampling_params, **kwargs)
        middle = len(whole.response_ids) // 2
        if not middle:
            return whole
        context = whole.prompt_ids + whole.response_ids[:middle]
        return [_part(whole, whole.prompt_ids, slice(None, middle)), _part(whole, context, slice(middle, None))]


def _part(whole: Any, prompt: list[int], at: slice) -> Any:
    tokens = {name: getattr(whole, name) for name in ("response_ids", "response_mask", "response_logprobs")}
    parts = {name: x and x[at] for name, x in tokens.items()}
    return whole.model_copy(
        update={"prompt_ids": prompt, "extra_fields": dict(whole.extra_fields), **parts}, deep=False
    )

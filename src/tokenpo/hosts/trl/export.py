"""Responses drawn by TRL's own trainer as recorded rollouts for `tokenpo explain` (docs/rollouts.md)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...base.errors import MissingInput
from ...core.ops.group import numbered
from ...core.types import Policy, Rollouts
from ...records import Response, responses
from ...records.trace import pieces


def from_inputs(
    inputs: Mapping[str, Any],
    *,
    rewards: Tensor | Sequence[float],
    tokenizer: Any,
    groups: Sequence[int] | None = None,
    correct: Sequence[bool | None] | None = None,
    logprobs: Tensor | None = None,
    old_entropies: Tensor | None = None,
    entropies: Tensor | None = None,
    temperature: float | None = None,
    step: int | None = None,
) -> list[Response]:
    """Responses from what `_generate_and_score_completions` returns, or from the `inputs` of `_compute_loss`.

    Args:
        inputs: whole groups: after the first of the two TRL shuffles rows and cuts them into micro-batches.
        rewards: [N]; TRL's inputs hold advantages only.
        tokenizer: of the model.
        groups: [N]; None takes rows with the same prompt for a group.
        logprobs: [N, T] nats, of the current policy; the old ones where TRL keeps no old_per_token_logps.
        old_entropies, entropies: [N, T] nats, of the policy that sampled and of the policy of `logprobs`.
        temperature: `args.temperature`, at which every token was sampled.

    Raises:
        MissingInput: neither old_per_token_logps nor `logprobs`.
        TokenPOError: shapes that do not belong together, or a number that is not finite on a response token.
    """
    mask = inputs["completion_mask"].bool()
    if inputs.get("tool_mask") is not None:
        mask = mask & inputs["tool_mask"].bool()
    ids, old = inputs["completion_ids"], inputs.get("old_per_token_logps")
    anchor = logprobs if old is None else old
    if anchor is None:
        raise MissingInput(
            "TRL's inputs hold no old_per_token_logps, which it keeps only for several updates on one generation: give "
            "from_inputs(..., logprobs=...), what _get_per_token_logps_and_entropies returns first"
        )
    prompts = [row[kept].tolist() for row, kept in zip(inputs["prompt_ids"], inputs["prompt_mask"].bool(), strict=True)]
    heat = None if temperature is None else torch.full(mask.shape, float(temperature), device=mask.device)
    rollouts = Rollouts(
        mask=mask,
        reward=torch.as_tensor(rewards, device=mask.device).double(),
        group=torch.as_tensor(numbered([*map(tuple, prompts)]) if groups is None else groups, device=mask.device),
        old_logprob=anchor,
        old_entropy=old_entropies,
        ref_logprob=inputs.get("ref_per_token_logps"),
        rollout_logprob=inputs.get("sampling_per_token_logps"),
        temperature=heat,
        token_ids=ids,
    )
    policy = None if old is None or logprobs is None else Policy(logprob=logprobs, entropy=entropies)
    tokens = [pieces(tokenizer, row[kept].tolist()) for row, kept in zip(ids, mask, strict=True)]
    texts = [tokenizer.decode(prompt) for prompt in prompts]
    return [*responses(rollouts, tokens, prompts=texts, correct=correct, step=step, policy=policy)]

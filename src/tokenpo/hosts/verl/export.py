"""A training batch of verl as recorded rollouts, for `tokenpo explain` (docs/rollouts.md)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...base.errors import MissingInput
from ...core.ops.group import numbered
from ...core.types import Rollouts
from ...records import Response, responses
from ...records.trace import pieces

REWARDS = ("token_level_scores", "rm_scores", "token_level_rewards")


def from_batch(
    batch: Any,
    *,
    tokenizer: Any = None,
    entropies: Tensor | None = None,
    correct: Sequence[bool | None] | None = None,
    temperature: float | None = None,
    step: int | None = None,
) -> list[Response]:
    """Responses from a `DataProto` or TensorDict as verl's trainer holds it before the advantage.

    Required fields: responses, response_mask, old_log_probs, uid, and one of token_level_scores, rm_scores and
    token_level_rewards (summed over the response). Optional: entropys or entropy, ref_log_prob, rollout_log_probs,
    prompts, and min_global_steps with max_global_steps: the response's `version`, if they are equal for each response.
    Rows without a response token, which verl adds as padding, are left out.

    Args:
        tokenizer: of the model; without it a token is shown as its id.
        entropies: [N, T] nats, of the policy that sampled; the V0 trainer removes them from its batch.
        temperature: at which every token was sampled.

    Raises:
        MissingInput: a required field is missing.
        TokenPOError: shapes that do not match, or a number that is not finite on a response token.
    """
    mask = _needed(batch, "response_mask").bool()
    ids, scores = _needed(batch, "responses"), _field(batch, *REWARDS)
    if scores is None:
        raise MissingInput(
            f"verl's batch holds no rewards ({', '.join(REWARDS)}): call from_batch after they are known"
        )
    uid, old = [str(name) for name in _needed(batch, "uid")], _needed(batch, "old_log_probs")
    rollouts = Rollouts(
        mask=mask,
        reward=torch.where(mask, scores, 0.0).sum(1).double(),
        group=torch.tensor(numbered(uid), device=mask.device),
        old_logprob=old,
        old_entropy=entropies if entropies is not None else _field(batch, "entropys", "entropy"),
        ref_logprob=_field(batch, "ref_log_prob"),
        rollout_logprob=_field(batch, "rollout_log_probs"),
        temperature=None if temperature is None else torch.full_like(old, temperature),
        token_ids=ids,
        version=_version(batch, mask),
    )
    alive = mask.any(1)
    kept = alive.nonzero()[:, 0].tolist()
    tokens = [ids[row][mask[row]].tolist() for row in kept]
    texts, prompts = None, _field(batch, "prompts")
    if tokenizer is not None and prompts is not None:  # special tokens pad a prompt on the left
        texts = [tokenizer.decode(prompts[row].tolist(), skip_special_tokens=True) for row in kept]
    made = responses(
        rollouts.rows(alive),
        [[f"[{i}]" for i in row] if tokenizer is None else pieces(tokenizer, row) for row in tokens],
        groups=[uid[row] for row in kept],
        prompts=texts,
        correct=None if correct is None else [correct[row] for row in kept],
        step=step,
    )
    return list(made)


def _field(batch: Any, *names: str) -> Any:
    """The first of these fields that exists: a padded tensor, or a list; None if none does."""
    owners = (getattr(batch, "batch", batch), getattr(batch, "non_tensor_batch", None))
    for name, owner in ((name, owner) for name in names for owner in owners if owner is not None):
        if name in owner.keys():  # noqa: SIM118 - `in` a TensorDict is refused
            value = owner[name]
            if isinstance(value, Tensor):
                return torch.nested.to_padded_tensor(value, 0) if value.is_nested else value
            return value.tolist() if hasattr(value, "tolist") else list(value)
    return None


def _needed(batch: Any, name: str) -> Any:
    value = _field(batch, name)
    if value is None:
        raise MissingInput(f"verl's batch holds no {name!r}: call from_batch after the old log-probabilities are known")
    return value


def _version(batch: Any, mask: Tensor) -> Tensor | None:
    """[N, T] the step of the weights that sampled; None if it is unknown, or differs within a response."""
    first, last = (_field(batch, f"{end}_global_steps") for end in ("min", "max"))
    if first is None or last is None or any(a is None or a != b for a, b in zip(first, last, strict=True)):
        return None
    return torch.tensor([int(a) for a in first], device=mask.device)[:, None].expand(mask.shape)

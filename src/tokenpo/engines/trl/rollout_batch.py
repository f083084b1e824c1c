"""A rollout batch over all ranks: the responses that TRL drew, with their rewards, as rollouts of whole groups."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ...core.dynamic_sampling import mixed_groups
from ...core.ops import turns
from ...core.types import Rollouts
from .forward import Forward

FIELDS = tuple(field.name for field in dataclasses.fields(Rollouts) if field.name != "group")


@dataclass(frozen=True)
class RolloutBatch:
    """Rows of all ranks: one draw of TRL's, or what dynamic sampling chose of several.

    Args:
        output: TRL's output, this rank's rows.
        prompts: of this rank's rows.
        rows: by name: fields of `Rollouts`, rewards [N, F], length [N] tokens, truncated [N] bool, sampled_at [N, T].
        drawn: the same of every draw, those of discarded groups too.
        size: rows of a group.
        kept: groups that are trained on; no token of the rows behind them counts.
        rank: of this process.
    """

    output: dict[str, Any]
    prompts: Sequence[Any]
    rows: Mapping[str, Tensor]
    drawn: Mapping[str, Tensor]
    size: int
    kept: int
    rank: int

    @staticmethod
    def of(
        output: dict[str, Any], prompts: Sequence[Any], rows: Mapping[str, Tensor], size: int, rank: int
    ) -> RolloutBatch:
        """One draw, all groups of which are trained on."""
        return RolloutBatch(output, prompts, rows, rows, size, len(rows["mask"]) // size, rank)

    @property
    def mine(self) -> slice:
        """This rank's rows."""
        return slice(self.rank * len(self.prompts), (self.rank + 1) * len(self.prompts))

    @property
    def trained(self) -> slice:
        """The rows that are trained on."""
        return slice(0, self.kept * self.size)

    @cached_property
    def rollouts(self) -> Rollouts | None:
        """Of the rows that are trained on, and the empty ones behind; None where no token of any counts."""
        return _rollouts(self.rows, self.size)

    @cached_property
    def everything(self) -> Rollouts | None:
        """Of every draw."""
        return self.rollouts if self.drawn is self.rows else _rollouts(self.drawn, self.size)

    @property
    def equal(self) -> float:
        """Fraction of the drawn groups whose rewards are all equal."""
        return 1 - len(mixed(self.drawn, self.size)) * self.size / len(self.drawn["mask"])


def local_rows(trainer: Any, forward: Forward, output: Mapping[str, Any], unscored: Tensor) -> dict[str, Tensor]:
    """This rank's rows of a `RolloutBatch`, but for rewards and `sampled_at`.

    Args:
        output: of TRL's drawing.
        unscored: [M] bool, responses that every reward function passed over: no token of theirs counts.
    """
    args, ids = trainer.args, output["completion_ids"]
    written = output["completion_mask"].bool()
    mask = written & ~unscored[:, None]
    if "tool_mask" in output:
        mask = mask & output["tool_mask"].bool()
    rows = args.per_device_train_batch_size if trainer.model.training else args.per_device_eval_batch_size
    with torch.no_grad():
        old = forward.policy(trainer.model, output, rows)
    ends = torch.tensor([*trainer.eos_token_ids, trainer._tokenizer.pad_token_id], device=ids.device)
    length = written.sum(1)
    last = ids.gather(1, (length - 1).clamp(min=0)[:, None])[:, 0]
    known = {
        "mask": mask,
        "old_logprob": old.logprob.float(),
        "old_entropy": old.need("entropy").float(),
        "temperature": torch.full_like(old.logprob, trainer.temperature, dtype=torch.float32),
        "token_ids": ids,
        "turn": turns.numbered(mask),
        "length": length,
        "truncated": ~torch.isin(last, ends),
    }
    if "ref_per_token_logps" in output:
        known["ref_logprob"] = output["ref_per_token_logps"].float()
    if "sampling_per_token_logps" in output:
        reported = output["sampling_per_token_logps"].float()
        # A token that the engine which sampled could not score counts as no difference from the trainer.
        known["rollout_logprob"] = torch.where(reported.isnan(), known["old_logprob"], reported)
    return known


def over_ranks(
    trainer: Any, local: Mapping[str, Tensor], rewards: Tensor, prompts: Sequence[Any], size: int
) -> dict[str, Tensor]:
    """The rows of all ranks, by name, with `rewards` and `reward` [N].

    Args:
        local: tensors with an entry for each row of this rank; the same names on every rank.
        rewards: [N, F] of all ranks; NaN where a function does not apply.
        size: consecutive rows, in the order of ranks, that answer one prompt: a group may be split over ranks.

    Raises:
        TokenPOError: rows of one group answer different prompts.
    """
    rows = _gathered(trainer.accelerator, {**local, "prompt": _digests(prompts, rewards.device)})
    prompt = rows.pop("prompt")
    if len(prompt) % size or (prompt.view(-1, size) != prompt[::size, None]).any():
        raise TokenPOError(
            f"the {len(prompt)} rows of a rollout batch are not groups of {size} that answer one prompt each: leave "
            "the order of TRL's sampler, and split_batches and dispatch_batches, as they are"
        )
    weights = trainer.reward_weights.to(rewards.device)
    return rows | {"rewards": rewards, "reward": (rewards * weights).nansum(1)}


def mixed(rows: Mapping[str, Tensor], size: int) -> list[int]:
    """The groups whose rewards are not all equal."""
    varied = mixed_groups(rows["reward"], groups(rows, size), rows["mask"])
    return varied.view(-1, size).any(1).nonzero()[:, 0].tolist()


def groups(rows: Mapping[str, Tensor], size: int) -> Tensor:
    """[N] the group of each row."""
    return torch.arange(len(rows["mask"]), device=rows["mask"].device) // size


def _rollouts(rows: Mapping[str, Tensor], size: int) -> Rollouts | None:
    if not rows["mask"].any():
        return None
    return Rollouts(group=groups(rows, size), **{name: rows[name] for name in FIELDS if name in rows})


def _gathered(accelerator: Any, local: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of every rank, in the order of ranks, padded to the longest: prompts on the left."""
    if accelerator.num_processes == 1:
        return dict(local)
    rows = {}
    for name, x in local.items():
        sent = x.to(torch.uint8) if x.dtype == torch.bool else x  # not every backend gathers booleans
        if x.dim() == 2:
            sent = accelerator.pad_across_processes(sent, dim=1, pad_first="prompt_" in name)
        rows[name] = accelerator.gather(sent.contiguous()).to(x.dtype)
    return rows


def _digests(prompts: Sequence[Any], device: Any) -> Tensor:
    """[M] int64, equal for equal prompts."""
    digests = [hashlib.blake2b(repr(plain(prompt)).encode(), digest_size=8).digest() for prompt in prompts]
    return torch.tensor([int.from_bytes(digest, "big") >> 1 for digest in digests], device=device)


def plain(prompt: Any) -> Any:
    """The prompt as a JSON value that depends on its content alone: size, mode and digest stand for a picture."""
    if prompt is None or isinstance(prompt, str | int | float):
        return prompt
    if isinstance(prompt, Mapping):
        return {str(key): plain(value) for key, value in prompt.items()}
    if isinstance(prompt, list | tuple):
        return [plain(value) for value in prompt]
    if not (hasattr(prompt, "mode") and hasattr(prompt, "tobytes")):
        return repr(prompt)
    # The repr of a Pillow image holds its address.
    digest = hashlib.blake2b(prompt.tobytes(), digest_size=8).hexdigest()
    return f"<image {prompt.width}x{prompt.height} {prompt.mode} {digest}>"

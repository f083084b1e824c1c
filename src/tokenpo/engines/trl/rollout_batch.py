"""A rollout batch over all ranks: what TRL drew and its reward functions said becomes facts of whole groups."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ...core.dynamic_sampling import mixed_groups
from ...core.types import Rollouts
from .forward import Forward

FACTS = tuple(field.name for field in dataclasses.fields(Rollouts) if field.name != "group")
# What TRL's output is called among the rows of a draw that can be put together with others.
OUT = "out_"


@dataclass(frozen=True)
class Rewarded:
    """What TRL's reward functions were given and said.

    Args:
        each: [N, F] rewards of every rank; NaN where a function does not apply.
        prompts: of this rank's rows.
        completion_ids: of this rank's rows.
    """

    each: Tensor
    prompts: Sequence[Any]
    completion_ids: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Drawn:
    """One call of TRL's own drawing and scoring.

    Args:
        output: of TRL, this rank's rows.
        rows: of all ranks, by name: each [N, F] rewards, length [N] tokens, truncated [N] bool, and facts.
        prompts: of this rank's rows.
    """

    output: dict[str, Any]
    rows: dict[str, Tensor]
    prompts: Sequence[Any]


@dataclass(frozen=True)
class RolloutBatch:
    """One rollout batch over all ranks.

    Args:
        output: what TRL goes on with, this rank's rows.
        rollouts: what is trained on; None where no response has a token that counts.
        everything: rollouts of every draw, those of discarded groups too; None where none has a token that counts.
        rows: of every draw, as `Drawn` has them.
        kept: groups that are trained on; rows behind them count nowhere.
        discarded: fraction of the drawn groups that dynamic sampling dropped.
        chosen: the same of the rollouts.
        mine: this rank's rows.
        prompts: of this rank's rows.
    """

    output: dict[str, Any]
    rollouts: Rollouts | None
    everything: Rollouts | None
    rows: Mapping[str, Tensor]
    kept: int
    discarded: float
    chosen: Mapping[str, Tensor]
    mine: slice
    prompts: Sequence[Any]

    @staticmethod
    def of(drawn: Drawn, size: int, rank: int) -> RolloutBatch:
        """A rollout batch of this draw and nothing else, in groups of `size` rows."""
        rows, rollouts = drawn.rows, rollouts_of(drawn.rows, size)
        groups, mine = len(rows["mask"]) // size, share(len(drawn.prompts), rank)
        return RolloutBatch(drawn.output, rollouts, rollouts, rows, groups, 0.0, rows, mine, drawn.prompts)


def share(each: int, rank: int) -> slice:
    """The rows of a rank among those of all, each of which has so many."""
    return slice(rank * each, (rank + 1) * each)


def facts(
    trainer: Any, forward: Forward, output: Mapping[str, Any], rewarded: Rewarded, temperature: Tensor
) -> dict[str, Tensor]:
    """What is known of this rank's rows, [M] and [M, T], by the names of `Rollouts`, before groups are compared.

    A response that every reward function passed over has no token that counts, and so is in no group.

    Args:
        temperature: [M, T] that sampled each token.
    """
    train = trainer.model.training
    mask = output["completion_mask"].bool()
    if "tool_mask" in output:
        mask = mask & output["tool_mask"].bool()
    mine = share(len(rewarded.prompts), trainer.accelerator.process_index)
    unscored = rewarded.each[mine].isnan().all(1)
    mask = mask & ~unscored[:, None]
    rows = trainer.args.per_device_train_batch_size if train else trainer.args.per_device_eval_batch_size
    with torch.no_grad():
        old = forward.policy(trainer.model, output, temperature, rows)
    assert old.entropy is not None
    known = {
        "mask": mask,
        "old_logprob": old.logprob.float(),
        "old_entropy": old.entropy.float(),
        "temperature": temperature,
        "token_ids": output["completion_ids"],
    }
    if "ref_per_token_logps" in output:
        known["ref_logprob"] = output["ref_per_token_logps"].float()
    if "sampling_per_token_logps" in output:
        reported = output["sampling_per_token_logps"].float()
        # What the engine that sampled could not score counts as no difference from the trainer.
        known["rollout_logprob"] = torch.where(reported.isnan(), known["old_logprob"], reported)
    ended = {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
    known["length"] = torch.tensor([len(ids) for ids in rewarded.completion_ids], device=mask.device)
    known["truncated"] = torch.tensor([ids[-1] not in ended for ids in rewarded.completion_ids], device=mask.device)
    return known


def over_ranks(trainer: Any, local: Mapping[str, Tensor], rewarded: Rewarded, group_size: int) -> dict[str, Tensor]:
    """The rows of all ranks, by name, with `each` [N, F] and `reward` [N].

    Args:
        local: as `facts` gave it, and whatever else belongs to a row.
        group_size: consecutive rows, in the order of ranks, that answer one prompt: a group may be split over ranks.

    Raises:
        TokenPOError: rows of one group answer different prompts.
    """
    # Of the facts only: names that all ranks have.
    rows = gathered(trainer.accelerator, {**local, "prompt": _fingerprints(rewarded.prompts, local["mask"].device)})
    prompt = rows.pop("prompt")
    if len(prompt) % group_size or (prompt.view(-1, group_size) != prompt[::group_size, None]).any():
        raise TokenPOError(
            f"the {len(prompt)} rows of a rollout batch are not groups of {group_size} that answer one prompt each: "
            "leave the order of TRL's sampler, and split_batches and dispatch_batches, as they are"
        )
    weights = trainer.reward_weights.to(rewarded.each.device)
    return rows | {"each": rewarded.each, "reward": (rewarded.each * weights).nansum(1)}


def rollouts_of(rows: Mapping[str, Tensor], group_size: int) -> Rollouts | None:
    """Facts of whole groups; None where no response has a token that counts."""
    if not rows["mask"].any():
        return None
    group = torch.arange(len(rows["mask"]), device=rows["mask"].device) // group_size
    return Rollouts(group=group, **{name: rows[name] for name in FACTS if name in rows})


def mixed(rows: Mapping[str, Tensor], size: int) -> list[int]:
    """The groups whose rewards are not all equal."""
    group = torch.arange(len(rows["mask"]), device=rows["mask"].device) // size
    varied = mixed_groups(rows["reward"], group, rows["mask"])
    return varied.view(-1, size).any(1).nonzero()[:, 0].tolist()


def _fingerprints(prompts: Sequence[Any], device: Any) -> Tensor:
    """[M] int64, equal for equal prompts."""
    digests = [hashlib.blake2b(repr(plain(prompt)).encode(), digest_size=8).digest() for prompt in prompts]
    return torch.tensor([int.from_bytes(digest, "big") >> 1 for digest in digests], device=device)


def plain(prompt: Any) -> Any:
    """The prompt as a value of JSON, with a few words in place of each picture, its digest among them.

    It is the same for the same content, wherever that lies in memory.
    """
    if prompt is None or isinstance(prompt, str | int | float):
        return prompt
    if isinstance(prompt, Mapping):
        return {str(key): plain(value) for key, value in prompt.items()}
    if isinstance(prompt, list | tuple):
        return [plain(value) for value in prompt]
    # Pillow's own name for an image is its address.
    return _picture(prompt) if hasattr(prompt, "mode") and hasattr(prompt, "tobytes") else repr(prompt)


def _picture(image: Any) -> str:
    digest = hashlib.blake2b(image.tobytes(), digest_size=8).hexdigest()
    return f"<image {image.width}x{image.height} {image.mode} {digest}>"


def gathered(accelerator: Any, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of every rank, in the order of ranks, padded to the longest; every rank calls it with the same names."""
    if accelerator.num_processes == 1:
        return dict(fields)
    return {name: _gathered(accelerator, x, left="prompt_" in name) for name, x in fields.items()}


def _gathered(accelerator: Any, x: Tensor, *, left: bool) -> Tensor:
    # Not every backend gathers booleans.
    sent = x.to(torch.uint8) if x.dtype == torch.bool else x
    if x.dim() == 2:
        sent = accelerator.pad_across_processes(sent, dim=1, pad_first=left)
    return accelerator.gather(sent.contiguous()).to(x.dtype)


def summed(accelerator: Any) -> Callable[[Tensor], Tensor]:
    """A vector to its sum over the ranks, in float32 at least."""
    return lambda x: accelerator.gather(x[None]).sum(0)


def largest(accelerator: Any) -> Callable[[Tensor], Tensor]:
    """A vector to its largest entries over the ranks."""
    return lambda x: accelerator.gather(x[None]).amax(0)

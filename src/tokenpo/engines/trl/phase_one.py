"""Phase one: what TRL drew becomes facts and credit, on whole groups, over all ranks."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ...core.ops.group import Groups
from ...core.types import Credit, Rollouts
from .forward import Forward
from .prompts import plain
from .rows import gathered, packed

FACTS = tuple(field.name for field in dataclasses.fields(Rollouts) if field.name != "group")


@dataclass(frozen=True)
class Scored:
    """What TRL's reward functions were given and said.

    Args:
        each: [N, F] rewards of every rank; NaN where a function does not apply.
        prompts: of this rank's rows.
        completion_ids: of this rank's rows.
    """

    each: Tensor
    prompts: Sequence[Any]
    completion_ids: Sequence[Sequence[int]]

    def mine(self, rank: int) -> slice:
        """This rank's rows among those of all."""
        return slice(rank * len(self.prompts), (rank + 1) * len(self.prompts))


@dataclass(frozen=True)
class Drawn:
    """One rollout batch over all ranks.

    Args:
        rollouts: what is trained on; None where no response has a token that counts.
        credit: of phase one; None with them.
        everything: rollouts of every draw, those of discarded groups too; None where none has a token that counts.
        rows: by name, of every draw: each [N, F] rewards, length [N] tokens, truncated [N] bool.
        kept: groups that are trained on; rows behind them count nowhere.
        discarded: fraction of the drawn groups that dynamic sampling dropped.
        mine: this rank's rows.
        prompts: of this rank's rows.
    """

    rollouts: Rollouts | None
    credit: Credit | None
    everything: Rollouts | None
    rows: Mapping[str, Tensor]
    kept: int
    discarded: float
    mine: slice
    prompts: Sequence[Any]

    def travelling(self, width: int, like: Tensor) -> dict[str, Tensor]:
        """This rank's rows as tensors for TRL to shuffle and split; [M, width] where they are of tokens."""
        if self.rollouts is None or self.credit is None:
            empty = like.new_zeros((len(like), width), dtype=torch.float32)
            places = torch.arange(self.mine.start, self.mine.stop, device=like.device)
            return {
                "tokenpo_mask": empty.bool(), "tokenpo_advantage": empty, "tokenpo_row": places,
                "tokenpo_temperature": empty + 1.0,
            }  # fmt: skip
        return packed(self.rollouts, self.credit, self.mine, width)


def facts(trainer: Any, forward: Forward, output: Mapping[str, Any], scored: Scored, heat: Tensor) -> dict[str, Tensor]:
    """What is known of this rank's rows, [M] and [M, T], by the names of `Rollouts`, before groups are compared.

    A response that every reward function passed over has no token that counts, and so is in no group.

    Args:
        heat: [M, T], the temperature that sampled each token.
    """
    train = trainer.model.training
    mask = output["completion_mask"].bool()
    if "tool_mask" in output:
        mask = mask & output["tool_mask"].bool()
    unscored = scored.each[scored.mine(trainer.accelerator.process_index)].isnan().all(1)
    mask = mask & ~unscored[:, None]
    rows = trainer.args.per_device_train_batch_size if train else trainer.args.per_device_eval_batch_size
    with torch.no_grad():
        old = forward.policy(trainer.model, output, heat, rows)
    assert old.entropy is not None
    known = {
        "mask": mask,
        "old_logprob": old.logprob.float(),
        "old_entropy": old.entropy.float(),
        "temperature": heat,
        "token_ids": output["completion_ids"],
    }
    if "ref_per_token_logps" in output:
        known["ref_logprob"] = output["ref_per_token_logps"].float()
    if "sampling_per_token_logps" in output:
        reported = output["sampling_per_token_logps"].float()
        # What the engine that sampled could not score counts as no difference from the trainer.
        known["rollout_logprob"] = torch.where(reported.isnan(), known["old_logprob"], reported)
    ended = {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
    known["length"] = torch.tensor([len(ids) for ids in scored.completion_ids], device=mask.device)
    known["truncated"] = torch.tensor([ids[-1] not in ended for ids in scored.completion_ids], device=mask.device)
    return known


def over_ranks(trainer: Any, local: Mapping[str, Tensor], scored: Scored, group_size: int) -> dict[str, Tensor]:
    """The rows of all ranks, by name, with `each` [N, F] and `reward` [N].

    Args:
        local: as `facts` gave it, and whatever else belongs to a row.
        group_size: consecutive rows, in the order of ranks, that answer one prompt: a group may be split over ranks.

    Raises:
        TokenPOError: rows of one group answer different prompts.
    """
    # Of the facts only: names that all ranks have.
    rows = gathered(trainer.accelerator, {**local, "prompt": _fingerprints(scored.prompts, local["mask"].device)})
    prompt = rows.pop("prompt")
    if len(prompt) % group_size or (prompt.view(-1, group_size) != prompt[::group_size, None]).any():
        raise TokenPOError(
            f"the {len(prompt)} rows of a rollout batch are not groups of {group_size} that answer one prompt each: "
            "leave the order of TRL's sampler, and split_batches and dispatch_batches, as they are"
        )
    weights = trainer.reward_weights.to(scored.each.device)
    return rows | {"each": scored.each, "reward": (scored.each * weights).nansum(1)}


def rollouts_of(rows: Mapping[str, Tensor], group_size: int) -> Rollouts | None:
    """Facts of whole groups; None where no response has a token that counts."""
    if not rows["mask"].any():
        return None
    group = torch.arange(len(rows["mask"]), device=rows["mask"].device) // group_size
    return Rollouts(group=group, **{name: rows[name] for name in FACTS if name in rows})


def mixed(rows: Mapping[str, Tensor], size: int) -> list[int]:
    """The groups whose rewards are not all equal."""
    group = torch.arange(len(rows["mask"]), device=rows["mask"].device) // size
    varied = Groups.of(group, rows["mask"].any(1)).varied(rows["reward"])
    return varied.view(-1, size).any(1).nonzero()[:, 0].tolist()


def _fingerprints(prompts: Sequence[Any], device: Any) -> Tensor:
    """[M] int64, equal for equal prompts."""
    digests = [hashlib.blake2b(repr(plain(prompt)).encode(), digest_size=8).digest() for prompt in prompts]
    return torch.tensor([int.from_bytes(digest, "big") >> 1 for digest in digests], device=device)

"""A rollout batch over all ranks: TRL's draw and its rewards become facts of whole groups.

With dynamic sampling, groups whose rewards are all equal are dropped, and others drawn, up to a cap.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from accelerate.utils import gather_object  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch.nn.functional import pad

from ...base.errors import TokenPOError, Unsupported
from ...core.dynamic_sampling import mixed_groups, refill
from ...core.ops import turns
from ...core.seeds import keyed_generator
from ...core.types import Rollouts
from .forward import Forward

FACTS = tuple(field.name for field in dataclasses.fields(Rollouts) if field.name != "group")
# What TRL's output is called among the rows of a draw that can be put together with others.
OUT = "out_"


@dataclass(frozen=True)
class RolloutBatch:
    """Rows of all ranks: one draw of TRL's, or what dynamic sampling chose of several.

    Args:
        output: what TRL goes on with, this rank's rows.
        prompts: of this rank's rows.
        rows: by name: facts, rewards [N, F], length [N] tokens, truncated [N] bool, sampled_at [N, T].
        drawn: the same of every draw, those of discarded groups too.
        size: rows of a group.
        kept: groups that are trained on; rows behind them count nowhere.
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

    @cached_property
    def rollouts(self) -> Rollouts | None:
        """What is trained on; None where no response has a token that counts."""
        return rollouts_of(self.rows, self.size)

    @cached_property
    def everything(self) -> Rollouts | None:
        """Rollouts of every draw."""
        return self.rollouts if self.drawn is self.rows else rollouts_of(self.drawn, self.size)

    @property
    def equal(self) -> float:
        """Fraction of the drawn groups whose rewards are all equal."""
        return 1 - len(mixed(self.drawn, self.size)) * self.size / len(self.drawn["mask"])


def facts(trainer: Any, forward: Forward, output: Mapping[str, Any], unscored: Tensor) -> dict[str, Tensor]:
    """What is known of this rank's rows, [M] and [M, T], by the names of `Rollouts`, before groups are compared.

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
    assert old.entropy is not None
    ends = torch.tensor([*trainer.eos_token_ids, trainer._tokenizer.pad_token_id], device=ids.device)
    length = written.sum(1)
    last = ids.gather(1, (length - 1).clamp(min=0)[:, None])[:, 0]
    known = {
        "mask": mask,
        "old_logprob": old.logprob.float(),
        "old_entropy": old.entropy.float(),
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
        # What the engine that sampled could not score counts as no difference from the trainer.
        known["rollout_logprob"] = torch.where(reported.isnan(), known["old_logprob"], reported)
    return known


def over_ranks(
    trainer: Any, local: Mapping[str, Tensor], rewards: Tensor, prompts: Sequence[Any], size: int
) -> dict[str, Tensor]:
    """The rows of all ranks, by name, with `rewards` and `reward` [N].

    Args:
        local: as `facts` gave it, and whatever else belongs to a row; the same names on every rank.
        rewards: [N, F] of all ranks; NaN where a function does not apply.
        size: consecutive rows, in the order of ranks, that answer one prompt: a group may be split over ranks.

    Raises:
        TokenPOError: rows of one group answer different prompts.
    """
    rows = gathered(trainer.accelerator, {**local, "prompt": _fingerprints(prompts, rewards.device)})
    prompt = rows.pop("prompt")
    if len(prompt) % size or (prompt.view(-1, size) != prompt[::size, None]).any():
        raise TokenPOError(
            f"the {len(prompt)} rows of a rollout batch are not groups of {size} that answer one prompt each: leave "
            "the order of TRL's sampler, and split_batches and dispatch_batches, as they are"
        )
    weights = trainer.reward_weights.to(rewards.device)
    return rows | {"rewards": rewards, "reward": (rewards * weights).nansum(1)}


def rollouts_of(rows: Mapping[str, Tensor], size: int) -> Rollouts | None:
    """Facts of whole groups; None where no response has a token that counts."""
    if not rows["mask"].any():
        return None
    return Rollouts(group=_groups(rows, size), **{name: rows[name] for name in FACTS if name in rows})


def mixed(rows: Mapping[str, Tensor], size: int) -> list[int]:
    """The groups whose rewards are not all equal."""
    varied = mixed_groups(rows["reward"], _groups(rows, size), rows["mask"])
    return varied.view(-1, size).any(1).nonzero()[:, 0].tolist()


def _groups(rows: Mapping[str, Tensor], size: int) -> Tensor:
    return torch.arange(len(rows["mask"]), device=rows["mask"].device) // size


class Refill:
    """Where further prompts come from: the data set in an order of its own.

    Attributes:
        cursor: prompts taken so far.
    """

    def __init__(self, dataset: Any, seed: int, most: int) -> None:
        self._dataset, self._seed, self._most = dataset, seed, most
        self.cursor = 0

    def filled(self, trainer: Any, first: RolloutBatch) -> RolloutBatch:
        """The rollout batch filled with groups whose rewards differ, as far as the cap allows.

        Places that stay empty hold groups that count nowhere, since TRL wants as many rows as ever.
        """
        draws, size, wanted = [first], first.size, first.kept
        while len(draws) <= self._most:
            differ = sum(len(mixed(draw.rows, size)) for draw in draws)
            count = refill(wanted, differ, sum(draw.kept for draw in draws))
            if count <= 0:
                break
            draws.append(trainer.drawn(self._inputs(trainer.accelerator, count, size), size))
        return _merged(trainer.accelerator, draws, wanted, size)

    def _inputs(self, accelerator: Any, groups: int, size: int) -> list[dict[str, Any]]:
        """This rank's rows of at least `groups` new groups; every rank gets the same number."""
        while groups * size % accelerator.num_processes:
            groups += 1
        places = [place for i in range(groups) for place in [self._place(self.cursor + i)] * size]
        self.cursor += groups
        each = len(places) // accelerator.num_processes
        first = accelerator.process_index * each
        return [self._dataset[place] for place in places[first : first + each]]

    def _place(self, number: int) -> int:
        epoch, place = divmod(number, len(self._dataset))
        return int(torch.randperm(len(self._dataset), generator=keyed_generator(self._seed, "refill", epoch))[place])


def _merged(accelerator: Any, draws: Sequence[RolloutBatch], wanted: int, size: int) -> RolloutBatch:
    """The first `wanted` groups that differ, and in the places that are left others of the first draw, emptied."""
    drawn = stacked([draw.rows for draw in draws])
    kept = mixed(drawn, size)[:wanted]
    others = [group for group in range(wanted) if group not in kept][: wanted - len(kept)]
    places = (torch.tensor([*kept, *others])[:, None] * size + torch.arange(size)).flatten()
    rows = {name: x[places.to(x.device)] for name, x in drawn.items()}
    rows["mask"] = rows["mask"] & (_groups(rows, size) < len(kept))[:, None]
    prompts = [prompt for draw in draws for prompt in gather_object(list(draw.prompts))]
    rank, mine = accelerator.process_index, draws[0].mine
    output: dict[str, Any] = {name.removeprefix(OUT): x[mine] for name, x in rows.items() if name.startswith(OUT)}
    output["num_items_in_batch"] = rows["mask"].sum()
    return RolloutBatch(output, [prompts[i] for i in places[mine].tolist()], rows, drawn, size, len(kept), rank)


def carried(output: Mapping[str, Any]) -> dict[str, Tensor]:
    """TRL's output as tensors that can be put together with those of another draw.

    Raises:
        Unsupported: a model with images, whose rows have no common layout.
    """
    odd = [name for name, x in output.items() if not isinstance(x, Tensor) or name.startswith(("pixel", "image"))]
    if odd:
        raise Unsupported(f"dynamic_sampling is for text only, and TRL drew {odd[0]}: leave it False for this model")
    return {f"{OUT}{name}": x for name, x in output.items() if x.dim() > 0}


def stacked(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows of several draws, padded to the widest: prompts on the left, the rest on the right."""
    return {name: torch.cat(_widened([part[name] for part in parts], name)) for name in parts[0]}


def _widened(parts: Sequence[Tensor], name: str) -> list[Tensor]:
    if parts[0].dim() < 2 or name == "rewards":
        return list(parts)
    width = max(part.shape[1] for part in parts)
    left = name.startswith(f"{OUT}prompt_")
    return [pad(part, (width - part.shape[1], 0) if left else (0, width - part.shape[1])) for part in parts]


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

"""TRL's draws as rollouts of whole groups over all ranks; dynamic sampling, which replaces groups of equal rewards."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from accelerate.utils import gather_object  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch.nn.functional import pad

from ...base.errors import present
from ...core.ops import turns
from ...core.ops.group import mixed_groups, refill
from ...core.seeds import keyed_generator
from ...core.types import Rollouts
from .forward import KEPT, Forward

# Prefix of TRL's output among the rows of a draw.
OUT = "out_"
# TRL's output about pictures: what each row has in a number of its own; and numbers of prompt and response tokens.
SEEN = """pixel_values pixel_attention_mask image_grid_thw image_position_ids image_sizes spatial_shapes num_images
    num_tiles""".split()
TYPES = ("token_type_ids", "mm_token_type_ids")


@dataclass(frozen=True)
class RolloutBatch:
    """Rows of all ranks: one draw of TRL, or the groups that dynamic sampling chose from several draws.

    `rows` holds fields of `Rollouts`, rewards [N, F], length [N] tokens, truncated [N] bool, sampled_at [N, T], and
    unscored [N, T] bool: tokens that `mask` leaves out only because no reward function scored the response.
    """

    output: dict[str, Any]  # TRL's, for this rank's rows
    prompts: Sequence[Any]  # of this rank's rows
    rows: Mapping[str, Tensor]
    drawn: Mapping[str, Tensor]  # like `rows`, for every draw, with discarded groups
    size: int  # rows per group
    kept: int  # number of groups to train on; they come first, and later rows have an empty mask
    rank: int  # of this process
    pictures: Sequence[Mapping[str, Any]] = ()  # of this rank's rows, with dynamic sampling alone

    @property
    def mine(self) -> slice:
        return slice(self.rank * len(self.prompts), (self.rank + 1) * len(self.prompts))

    @property
    def trained(self) -> slice:
        return slice(0, self.kept * self.size)

    @cached_property
    def rollouts(self) -> Rollouts | None:
        """All `rows`, with those whose mask is empty; None if no token counts."""
        return _rollouts(self.rows, self.size)

    @property
    def with_unscored(self) -> Rollouts:
        """Like `rollouts`, with the tokens of responses that no reward function scored."""
        mask = self.rows["mask"] | self.rows["unscored"]
        return present(_rollouts({**self.rows, "mask": mask}, self.size), "a token that counts")

    @cached_property
    def everything(self) -> Rollouts | None:
        """All rows of every draw; None if no token counts."""
        return self.rollouts if self.drawn is self.rows else _rollouts(self.drawn, self.size)

    @property
    def equal(self) -> float:
        """Fraction of the drawn groups whose rewards are all equal."""
        return 1 - len(mixed(self.drawn, self.size)) * self.size / len(self.drawn["mask"])


def local_rows(trainer: Any, forward: Forward, output: Mapping[str, Any], unscored: Tensor) -> dict[str, Tensor]:
    """This rank's rows of a `RolloutBatch`, without rewards and `sampled_at`; `unscored` [M]: nobody scored it."""
    args, ids = trainer.args, output["completion_ids"]
    written = output["completion_mask"].bool()
    sampled = written & output["tool_mask"].bool() if "tool_mask" in output else written
    mask = sampled & ~unscored[:, None]
    rows = args.per_device_train_batch_size if trainer.model.training else args.per_device_eval_batch_size
    with torch.no_grad():
        old = forward.policy(trainer.model, output, rows)
    ends = torch.tensor([*trainer.eos_token_ids, trainer._tokenizer.pad_token_id], device=ids.device)
    length = written.sum(1)
    last = ids.gather(1, (length - 1).clamp(min=0)[:, None])[:, 0]
    fields = {
        "mask": mask,
        "unscored": sampled & unscored[:, None],
        "old_logprob": old.logprob.float(),
        "old_entropy": old.need("entropy").float(),
        "temperature": torch.full_like(old.logprob, trainer.temperature, dtype=torch.float32),
        "token_ids": ids,
        **({"kept_ids": output[KEPT]} if KEPT in output else {}),
        "turn": turns.numbered(mask),
        "length": length,
        "truncated": ~torch.isin(last, ends),
    }
    if "teacher_logprob" in trainer.policy_objective.needs:
        fields["teacher_logprob"] = trainer.teacher.logprob(output, rows)
    if "ref_per_token_logps" in output:
        fields["ref_logprob"] = output["ref_per_token_logps"].float()
    if "sampling_per_token_logps" in output:
        reported = output["sampling_per_token_logps"].float()
        # NaN: the sampler could not score this token; it gets the trainer's log-probability, a ratio of 1.
        fields["rollout_logprob"] = torch.where(reported.isnan(), fields["old_logprob"], reported)
    return fields


def over_ranks(trainer: Any, local: Mapping[str, Tensor], rewards: Tensor) -> dict[str, Tensor]:
    """The rows of all ranks, by name, with `reward` [N].

    `rewards` [N, F] are of all ranks; NaN where a function does not apply.
    """
    rows = _gathered(trainer.accelerator, local)
    weights = trainer.reward_weights.to(rewards.device)
    return rows | {"rewards": rewards, "reward": (rewards * weights).nansum(1)}


def mixed(rows: Mapping[str, Tensor], size: int) -> list[int]:
    varied = mixed_groups(rows["reward"], groups(rows, size), rows["mask"])
    return varied.view(-1, size).any(1).nonzero()[:, 0].tolist()


def groups(rows: Mapping[str, Tensor], size: int) -> Tensor:
    """[N] the group of each row."""
    return torch.arange(len(rows["mask"]), device=rows["mask"].device) // size


def _rollouts(rows: Mapping[str, Tensor], size: int) -> Rollouts | None:
    if not rows["mask"].any():
        return None
    fields: dict[str, Any] = {x.name: rows[x.name] for x in dataclasses.fields(Rollouts) if x.name in rows}
    return Rollouts(group=groups(rows, size), **fields)


def _gathered(accelerator: Any, local: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of every rank, in the order of ranks, padded to the longest: prompts on the left."""
    if accelerator.num_processes == 1:
        return dict(local)
    rows = {}
    for name, x in local.items():
        sent = x.to(torch.uint8) if x.dtype == torch.bool else x  # not every backend gathers booleans
        for dim in range(1, x.dim()):
            fill = -1 if name == "kept_ids" else 0
            sent = accelerator.pad_across_processes(sent, dim=dim, pad_index=fill, pad_first="prompt_" in name)
        rows[name] = accelerator.gather(sent.contiguous()).to(x.dtype)
    return rows


def plain(prompt: Any) -> Any:
    """The prompt as a JSON value that depends on content only; a picture becomes its size, mode and digest."""
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


class Refill:
    """Fills rollout batches with further prompts, from its own shuffled pass over the data set."""

    def __init__(self, dataset: Any, seed: int, most: int) -> None:
        self._dataset, self._seed, self._most = dataset, seed, most  # draws per rollout batch in addition to TRL's
        self.cursor = 0  # prompts taken so far

    def filled(self, trainer: Any, first: RolloutBatch) -> RolloutBatch:
        """The rollout batch filled with groups whose rewards differ, as far as the cap allows.

        TRL needs the same number of rows, so the remaining places hold groups with an empty mask.
        """
        draws, size, wanted = [first], first.size, first.kept
        while len(draws) <= self._most:
            differ = sum(len(mixed(draw.rows, size)) for draw in draws)
            count = refill(wanted, differ, sum(draw.kept for draw in draws))
            if count <= 0:
                break
            draws.append(trainer.drawn(self._inputs(trainer.accelerator, count, size), size))
        return _merged(trainer.accelerator, draws, wanted, size)

    def _inputs(self, accelerator: Any, count: int, size: int) -> list[dict[str, Any]]:
        """This rank's rows of at least `count` new groups; every rank gets the same number."""
        while count * size % accelerator.num_processes:
            count += 1
        places = [place for i in range(count) for place in [self._place(self.cursor + i)] * size]
        self.cursor += count
        each = len(places) // accelerator.num_processes
        first = accelerator.process_index * each
        return [self._dataset[place] for place in places[first : first + each]]

    def _place(self, number: int) -> int:
        epoch, place = divmod(number, len(self._dataset))
        return int(torch.randperm(len(self._dataset), generator=keyed_generator(self._seed, "refill", epoch))[place])


def carried(output: Mapping[str, Any]) -> dict[str, Tensor]:
    """TRL's output as rows for `stacked`, without its `pictures`."""
    rows = {name: x for name, x in output.items() if name not in (*SEEN, *TYPES) and x.dim() > 0}
    width = output["prompt_ids"].shape[1]
    for name in TYPES:
        if name in output:  # prompts and responses are padded on different sides
            rows[f"prompt_{name}"], rows[f"completion_{name}"] = output[name].split(
                [width, output[name].shape[1] - width], 1
            )
    return {f"{OUT}{name}": x for name, x in rows.items()}


def pictures(output: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each row of TRL's output sees, on the CPU: some models have as many rows of pixels as pictures or tiles."""
    from trl.trainer.utils import split_pixel_values_by_grid  # pyright: ignore

    split = split_pixel_values_by_grid({name: output[name] for name in SEEN if name in output})
    rows = range(len(output["completion_ids"]))
    each = [{name: x[i] if isinstance(x, list) else x[i : i + 1] for name, x in split.items()} for i in rows]
    return [{name: x.cpu() if isinstance(x, Tensor) else x for name, x in row.items()} for row in each]


def together(rows: Sequence[Mapping[str, Any]], device: torch.device) -> dict[str, Any]:
    """The `pictures` of these rows in TRL's layout."""
    joined = {name: [row[name] for row in rows] for name in rows[0]}
    return {k: torch.cat(x).to(device) if isinstance(x[0], Tensor) else x for k, x in joined.items()}


def stacked(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows of several draws, padded to the widest: prompts on the left, the rest on the right."""
    whole = {}
    for name, first in parts[0].items():
        rows = [part[name] for part in parts]
        if first.dim() == 2:
            width, left = max(x.shape[1] for x in rows), name.startswith(f"{OUT}prompt_")
            short = [width - x.shape[1] for x in rows]
            rows = [pad(x, (by, 0) if left else (0, by)) for x, by in zip(rows, short, strict=True)]
        whole[name] = torch.cat(rows)
    return whole


def _merged(accelerator: Any, draws: Sequence[RolloutBatch], wanted: int, size: int) -> RolloutBatch:
    """The first `wanted` groups whose rewards differ; other groups, with an empty mask, fill the remaining places."""
    seen = [row for draw in draws for row in gather_object(list(draw.pictures))]
    drawn = stacked([draw.rows for draw in draws])
    kept = mixed(drawn, size)[:wanted]
    others = [group for group in range(wanted) if group not in kept][: wanted - len(kept)]
    places = (torch.tensor([*kept, *others])[:, None] * size + torch.arange(size)).flatten()
    rows = {name: x[places.to(x.device)] for name, x in drawn.items()}
    for name in ("mask", "unscored"):
        rows[name] = rows[name] & (groups(rows, size) < len(kept))[:, None]
    prompts = [prompt for draw in draws for prompt in gather_object(list(draw.prompts))]
    rank, mine = accelerator.process_index, draws[0].mine
    output: dict[str, Any] = {name.removeprefix(OUT): x[mine] for name, x in rows.items() if name.startswith(OUT)}
    for name in TYPES:
        if f"prompt_{name}" in output:
            output[name] = torch.cat([output.pop(f"prompt_{name}"), output.pop(f"completion_{name}")], 1)
    here = places[mine].tolist()
    output |= together([seen[i] for i in here], rows["mask"].device)
    output["num_items_in_batch"] = rows["mask"].sum()
    return RolloutBatch(output, [prompts[i] for i in here], rows, drawn, size, len(kept), rank)

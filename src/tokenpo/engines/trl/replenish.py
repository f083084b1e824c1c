"""Dynamic sampling: groups whose rewards are all equal are dropped, and others drawn, up to a cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch.nn.functional import pad

from ...base.errors import Unsupported
from ...core.dynamic_sampling import refill
from ...core.seeds import keyed_generator
from .rollout_batch import RolloutBatch, groups, mixed

# Prefix of TRL's output among the rows of a draw.
OUT = "out_"


class Refill:
    """Fills rollout batches with further prompts, drawn from the data set in an order of its own.

    Attributes:
        cursor: prompts taken so far.
    """

    def __init__(self, dataset: Any, seed: int, most: int) -> None:
        self._dataset, self._seed, self._most = dataset, seed, most
        self.cursor = 0

    def filled(self, trainer: Any, first: RolloutBatch) -> RolloutBatch:
        """The rollout batch filled with groups whose rewards differ, as far as the cap allows.

        Places that stay empty hold groups without a token that counts, since TRL wants as many rows as ever.
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
    """TRL's output as rows that can be put together with those of another draw.

    Raises:
        Unsupported: a model with images, whose rows have no common layout.
    """
    odd = [name for name, x in output.items() if not isinstance(x, Tensor) or name.startswith(("pixel", "image"))]
    if odd:
        raise Unsupported(f"dynamic_sampling is for text only, and TRL drew {odd[0]}: leave it False for this model")
    return {f"{OUT}{name}": x for name, x in output.items() if x.dim() > 0}


def stacked(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows of several draws, padded to the widest: prompts on the left, the rest on the right."""
    whole = {}
    for name, first in parts[0].items():
        rows = [part[name] for part in parts]
        if first.dim() == 2 and name != "rewards":
            width, left = max(x.shape[1] for x in rows), name.startswith(f"{OUT}prompt_")
            short = [width - x.shape[1] for x in rows]
            rows = [pad(x, (by, 0) if left else (0, by)) for x, by in zip(rows, short, strict=True)]
        whole[name] = torch.cat(rows)
    return whole


def _merged(accelerator: Any, draws: Sequence[RolloutBatch], wanted: int, size: int) -> RolloutBatch:
    """The first `wanted` groups that differ, and in the places that are left others of the first draw, emptied."""
    drawn = stacked([draw.rows for draw in draws])
    kept = mixed(drawn, size)[:wanted]
    others = [group for group in range(wanted) if group not in kept][: wanted - len(kept)]
    places = (torch.tensor([*kept, *others])[:, None] * size + torch.arange(size)).flatten()
    rows = {name: x[places.to(x.device)] for name, x in drawn.items()}
    rows["mask"] = rows["mask"] & (groups(rows, size) < len(kept))[:, None]
    prompts = [prompt for draw in draws for prompt in gather_object(list(draw.prompts))]
    rank, mine = accelerator.process_index, draws[0].mine
    output: dict[str, Any] = {name.removeprefix(OUT): x[mine] for name, x in rows.items() if name.startswith(OUT)}
    output["num_items_in_batch"] = rows["mask"].sum()
    return RolloutBatch(output, [prompts[i] for i in places[mine].tolist()], rows, drawn, size, len(kept), rank)

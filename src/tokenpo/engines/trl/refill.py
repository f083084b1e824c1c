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
from .rollout_batch import OUT, Drawn, RolloutBatch, mixed, rollouts_of, share


class Refill:
    """Where further prompts come from: the data set in an order of its own.

    Attributes:
        cursor: prompts taken so far.
    """

    def __init__(self, dataset: Any, seed: int, most: int) -> None:
        self._dataset, self._seed, self._most = dataset, seed, most
        self.cursor = 0

    def filled(self, trainer: Any, first: Drawn, size: int) -> RolloutBatch:
        """The rollout batch filled with groups whose rewards differ, as far as the cap allows.

        Places that stay empty hold groups that count nowhere, since TRL wants as many rows as ever.
        """
        draws, wanted = [first], len(first.rows["mask"]) // size
        while len(draws) <= self._most:
            kept = sum(len(mixed(drawn.rows, size)) for drawn in draws)
            count = refill(wanted, kept, sum(len(drawn.rows["mask"]) // size for drawn in draws))
            if count <= 0:
                break
            draws.append(trainer.drawn(self._rows(trainer.accelerator, count, size), size))
        return _merged(trainer.accelerator, draws, wanted, size)

    def _rows(self, accelerator: Any, groups: int, size: int) -> list[dict[str, Any]]:
        """This rank's rows of at least so many new groups; every rank gets as many."""
        while groups * size % accelerator.num_processes:
            groups += 1
        places = [place for i in range(groups) for place in [self._place(self.cursor + i)] * size]
        self.cursor += groups
        mine = share(len(places) // accelerator.num_processes, accelerator.process_index)
        return [self._dataset[place] for place in places[mine]]

    def _place(self, number: int) -> int:
        epoch, place = divmod(number, len(self._dataset))
        return int(torch.randperm(len(self._dataset), generator=keyed_generator(self._seed, "refill", epoch))[place])


def _merged(accelerator: Any, draws: Sequence[Drawn], wanted: int, size: int) -> RolloutBatch:
    """The first `wanted` groups that differ, and in the places that are left others of the first draw, emptied."""
    everything = stacked([drawn.rows for drawn in draws])
    differ = mixed(everything, size)
    kept = differ[:wanted]
    others = [group for group in range(wanted) if group not in kept][: wanted - len(kept)]
    places = (torch.tensor([*kept, *others])[:, None] * size + torch.arange(size)).flatten()
    rows = {name: x[places.to(x.device)] for name, x in everything.items()}
    rows["mask"] = rows["mask"] & (torch.arange(len(places), device=rows["mask"].device) < len(kept) * size)[:, None]
    mine = share(len(places) // accelerator.num_processes, accelerator.process_index)
    output: dict[str, Any] = {name.removeprefix(OUT): x[mine] for name, x in rows.items() if name.startswith(OUT)}
    output["num_items_in_batch"] = rows["mask"].sum()
    prompts = [prompt for drawn in draws for prompt in gather_object(list(drawn.prompts))]
    return RolloutBatch(
        output=output,
        rollouts=rollouts_of(rows, size),
        everything=rollouts_of(everything, size),
        rows=everything,
        kept=len(kept),
        discarded=1 - len(differ) * size / len(everything["mask"]),
        chosen=rows,
        mine=mine,
        prompts=[prompts[place] for place in places[mine].tolist()],
    )


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
    if parts[0].dim() < 2 or name == "each":
        return list(parts)
    width = max(part.shape[1] for part in parts)
    gaps = [width - part.shape[1] for part in parts]
    left = name.startswith(f"{OUT}prompt_")
    return [pad(part, (gap, 0) if left else (0, gap)) for part, gap in zip(parts, gaps, strict=True)]

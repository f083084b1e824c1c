"""Dynamic sampling: groups whose rewards are all equal are dropped, and others drawn, up to a cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch.nn.functional import pad

from ...base.errors import Unsupported
from ...core.seeds import keyed_generator
from .phase_one import Drawn, mixed, rollouts_of

_OUT = "out_"
_LEFT = f"{_OUT}prompt_"


@dataclass(frozen=True)
class Draw:
    """One call of TRL's own drawing and scoring.

    Args:
        output: of TRL, this rank's rows.
        rows: of all ranks, by name.
        prompts: of this rank's rows.
    """

    output: dict[str, Any]
    rows: dict[str, Tensor]
    prompts: Sequence[Any]

    def alone(self, rank: int, size: int) -> Drawn:
        """A rollout batch of this draw and nothing else; its credit is still to come."""
        rollouts = rollouts_of(self.rows, size)
        mine = slice(rank * len(self.prompts), (rank + 1) * len(self.prompts))
        groups = len(self.rows["mask"]) // size
        return Drawn(rollouts, None, rollouts, self.rows, groups, 0.0, mine, self.prompts)


class Refill:
    """Where further prompts come from: the data set in an order of its own.

    Attributes:
        cursor: prompts taken so far.
    """

    def __init__(self, dataset: Any, seed: int, most: int) -> None:
        self._dataset, self._seed, self._most = dataset, seed, most
        self.cursor = 0

    def filled(self, trainer: Any, first: Draw, size: int) -> tuple[dict[str, Any], Drawn]:
        """TRL's output and the rollout batch, filled with groups whose rewards differ, as far as the cap allows.

        Places that stay empty hold groups that count nowhere, since TRL wants as many rows as ever.
        """
        draws, kept = [first], [mixed(first.rows, size)]
        prompts = [gather_object(list(first.prompts))]
        needed = len(first.rows["mask"]) // size
        count = needed
        while (have := sum(map(len, kept))) < needed and len(draws) <= self._most:
            groups_drawn = sum(len(draw.rows["mask"]) // size for draw in draws)
            # As many as the share that was kept so far suggests, at most a whole batch.
            count = needed if have == 0 else min(needed, -(-(needed - have) * groups_drawn // have))
            draws.append(trainer._draw(self._rows(trainer.accelerator, count, size), size))
            prompts.append(gather_object(list(draws[-1].prompts)))
            kept.append(mixed(draws[-1].rows, size))
        return self._merged(trainer, draws, kept, prompts, needed, size)

    def _rows(self, accelerator: Any, groups: int, size: int) -> list[dict[str, Any]]:
        """This rank's rows of at least so many new groups; every rank gets as many."""
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

    def _merged(
        self,
        trainer: Any,
        draws: Sequence[Draw],
        kept: Sequence[list[int]],
        prompts: Sequence[list[Any]],
        needed: int,
        size: int,
    ) -> tuple[dict[str, Any], Drawn]:
        everything = stacked([draw.rows for draw in draws])
        starts = torch.tensor([0, *(len(draw.rows["mask"]) for draw in draws)]).cumsum(0).tolist()
        chosen = [start + group * size for start, groups in zip(starts, kept, strict=False) for group in groups]
        usable, chosen = len(chosen), chosen[:needed]
        taken = set(chosen)
        settled = [start for start in range(0, starts[1], size) if start not in taken]
        places = [start + i for start in [*chosen, *settled[: needed - len(chosen)]] for i in range(size)]
        rows = {name: x[torch.tensor(places, device=x.device)] for name, x in everything.items()}
        rows["mask"] = (
            rows["mask"] & (torch.arange(len(places), device=rows["mask"].device) < len(chosen) * size)[:, None]
        )
        each = len(places) // trainer.accelerator.num_processes
        mine = slice(trainer.accelerator.process_index * each, (trainer.accelerator.process_index + 1) * each)
        output = {name.removeprefix(_OUT): x[mine] for name, x in rows.items() if name.startswith(_OUT)}
        output["num_items_in_batch"] = rows["mask"].sum()
        texts = [text for part in prompts for text in part]
        drawn = Drawn(
            rollouts=rollouts_of(rows, size),
            credit=None,
            everything=rollouts_of(everything, size),
            rows=everything,
            kept=len(chosen),
            discarded=1 - usable * size / starts[-1],
            mine=mine,
            prompts=[texts[place] for place in places[mine]],
        )
        return output, drawn


def carried(output: Mapping[str, Any]) -> dict[str, Tensor]:
    """TRL's output as tensors that can be put together with those of another draw.

    Raises:
        Unsupported: a model with images, whose rows have no common layout.
    """
    odd = [name for name, x in output.items() if not isinstance(x, Tensor) or name.startswith(("pixel", "image"))]
    if odd:
        raise Unsupported(f"dynamic_sampling is for text only, and TRL drew {odd[0]}: leave it False for this model")
    return {f"{_OUT}{name}": x for name, x in output.items() if x.dim() > 0}


def stacked(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows of several draws, padded to the widest: prompts on the left, the rest on the right."""
    return {name: torch.cat(_widened([part[name] for part in parts], name)) for name in parts[0]}


def _widened(parts: Sequence[Tensor], name: str) -> list[Tensor]:
    if parts[0].dim() < 2 or name == "each":
        return list(parts)
    width = max(part.shape[1] for part in parts)
    gaps = [width - part.shape[1] for part in parts]
    left = name.startswith(_LEFT)
    return [pad(part, (gap, 0) if left else (0, gap)) for part, gap in zip(parts, gaps, strict=True)]

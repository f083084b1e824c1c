"""The core that both processors share, torch only: logits and what each row asks for -> factors on the temperature."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...core.ops.softmax import block_rows, entropy_of, softmax_parts
from .parameters import Heat


def factors(logits: Tensor, which: Tensor, heats: Mapping[int, Heat], base: Tensor | None = None) -> Tensor:
    """T_t / T of each row, [M] float32 (float64 for float64 logits); exactly 1 where `which` names no heat.

    Waits for no device, given heats that are on it. Temporaries are as large as a block of logits, not as the batch.

    Args:
        logits: [M, V]; -inf excludes a token.
        which: [M] int, the number of each row's heat.
        heats: the heats that occur, by number.
        base: [M] temperature T of each row; None where the logits are divided by it already.
    """
    step = block_rows(logits.shape[1], logits.device)
    pieces = []
    for start in range(0, logits.shape[0], step):
        rows = slice(start, start + step)
        scale = 1.0 if base is None else base[rows].to(logits.dtype).reciprocal().unsqueeze(-1)
        entropy = entropy_of(softmax_parts(logits[rows], scale))
        factor = torch.ones_like(entropy)
        for number, heat in heats.items():
            factor = torch.where(which[rows] == number, heat(entropy), factor)
        pieces.append(factor)
    return torch.cat(pieces) if pieces else logits.new_ones(0)


def divide(logits: Tensor, factor: Tensor) -> Tensor:
    """The same logits [M, V], each row divided by its factor [M] in place; a factor of 1 changes no bit."""
    return logits.div_(factor.to(logits.dtype).unsqueeze(-1))


class Numbers:
    """Gives equal heats one number, from 1 on; forgets those that no row uses.

    Args:
        device: of the logits.
    """

    def __init__(self, device: torch.device | str) -> None:
        self._device = device
        self._numbers: dict[Heat, int] = {}
        self._ready: dict[int, Heat] = {}
        self._next = 1

    def of(self, heat: Heat | None, used: set[int]) -> int:
        """0 for no heat. `used` are the numbers that rows still hold."""
        if heat is None:
            return 0
        if heat not in self._numbers:
            # Every training step brings new numbers; what only earlier steps used is let go here.
            self._numbers = {known: number for known, number in self._numbers.items() if number in used}
            self._ready = self.named(used) | {self._next: heat.on(self._device)}
            self._numbers[heat] = self._next
            self._next += 1
        return self._numbers[heat]

    def named(self, used: set[int]) -> dict[int, Heat]:
        """The heats of these numbers, on the device."""
        return {number: heat for number, heat in self._ready.items() if number in used}

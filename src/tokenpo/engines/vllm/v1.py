"""The adaptive temperature for vLLM's V1 runner, which divides by the temperature first and calls processors then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from .contract import require, require_fields, require_processed
from .heat import Numbers, divide, factors
from .parameters import check, read

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig

require(
    LogitsProcessor,
    {
        "__init__": ("vllm_config", "device", "is_pin_memory"),
        "validate_params": ("sampling_params",),
        "apply": ("logits",),
        "is_argmax_invariant": (),
        "update_state": ("batch_update",),
    },
)
require_fields(BatchUpdate, "batch_size", "removed", "added", "moved")


class AdaptiveTemperatureV1(LogitsProcessor):
    """Keeps the rows of the persistent batch in step with vLLM, and scales those that ask for it.

    Being argmax-invariant it runs after the temperature, so the entropy of what it sees is the entropy at the base
    temperature, and the remaining factor is T_t / T.
    """

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        require_processed(vllm_config)
        self._device = device
        self._numbers = Numbers(self._device)
        self._rows: dict[int, int] = {}  # row of the batch -> number of its heat
        self._which: Tensor | None = None

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        check(sampling_params.temperature, sampling_params.min_p, sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Removed, added, moved: in this order, as vLLM's BatchUpdate wants it."""
        if batch_update is None:
            return
        rows = self._rows
        for row in batch_update.removed:
            rows.pop(row, None)
        for row, params, *_ in batch_update.added:
            # A new request may take the row of one that was not reported as removed.
            self._put(row, self._numbers.of(read(params.extra_args), set(rows.values())))
        for source, target, direction in batch_update.moved:
            moved, other = rows.get(source, 0), rows.get(target, 0)
            self._put(target, moved)
            self._put(source, other if direction == MoveDirectionality.SWAP else 0)
        self._which = None

    def apply(self, logits: Tensor) -> Tensor:
        """logits [M, V], divided by the base temperature already; the same tensor, scaled in place."""
        used = set(self._rows.values())
        if not used:
            return logits
        if self._which is None or len(self._which) != len(logits):
            which = [self._rows.get(row, 0) for row in range(len(logits))]
            self._which = torch.tensor(which, dtype=torch.int64).to(self._device, non_blocking=True)
        return divide(logits, factors(logits, self._which, self._numbers.named(used)))

    def _put(self, row: int, number: int) -> None:
        if number:
            self._rows[row] = number
        else:
            self._rows.pop(row, None)

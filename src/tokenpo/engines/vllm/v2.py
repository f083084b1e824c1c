"""The adaptive temperature for vLLM's V2 runner, which calls processors first and divides by the temperature then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor, LogitsProcRequestState

from .contract import require, require_fields, require_processed
from .heat import Numbers, divide, factors
from .parameters import check, read

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig

require(
    LogitsProcessor,
    {
        "__init__": ("vllm_config", "req_states"),
        "validate_params": ("sampling_params",),
        "add_request": ("req_idx", "sampling_params"),
        "apply_staged_writes": (),
        "apply": ("logits", "ctx"),
    },
)
require_fields(LogitsContext, "expanded_idx_mapping", "idx_mapping_np")
require_fields(LogitsProcRequestState, "device", "max_num_reqs")


class AdaptiveTemperatureV2(LogitsProcessor):
    """Keeps a heat and a base temperature per request slot, and scales the rows of slots that ask for it."""

    def __init__(self, vllm_config: VllmConfig, req_states: LogitsProcRequestState) -> None:
        require_processed(vllm_config)
        self._device = req_states.device
        self._numbers = Numbers(self._device)
        self._slots = np.zeros(req_states.max_num_reqs, dtype=np.int64)  # slot -> number of its heat
        self._base = np.ones(req_states.max_num_reqs, dtype=np.float32)
        self._on_device: tuple[Tensor, Tensor] | None = None

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        check(sampling_params.temperature, sampling_params.min_p, sampling_params.extra_args)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Whether the request in this slot, which another may have left, asks for an adaptive temperature."""
        heat = read(sampling_params.extra_args)
        self._slots[req_idx] = 0
        self._slots[req_idx] = self._numbers.of(heat, set(self._slots.tolist()))
        self._base[req_idx] = 1.0 if heat is None else sampling_params.temperature
        self._on_device = None
        return heat is not None

    def apply_staged_writes(self) -> None:
        if self._on_device is None:
            # New tensors, not new values in the old ones: a step that is still under way may read those.
            host = torch.from_numpy(self._slots.copy()), torch.from_numpy(self._base.copy())
            slots, base = (x.to(self._device, non_blocking=True) for x in host)
            self._on_device = slots, base

    def apply(self, logits: Tensor, ctx: LogitsContext) -> Tensor:
        """logits [M, V] before the temperature, a row for each token to sample; the same tensor, scaled in place."""
        used = set(self._slots[ctx.idx_mapping_np].tolist()) - {0}
        if not used:
            return logits
        self.apply_staged_writes()
        assert self._on_device is not None
        which, base = (x[ctx.expanded_idx_mapping] for x in self._on_device)
        return divide(logits, factors(logits, which, self._numbers.named(used), base))

"""One class to name to vLLM, whichever of its two runners a model gets.

The runners take different processors and refuse each other's, and vLLM decides late which one runs: so this class is of
both kinds, as far as the installed version has them.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...base.errors import Unsupported
from .runners import V1Rows, V2Slots, check, require_processed

if TYPE_CHECKING:
    from vllm import SamplingParams  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]


def _bases() -> tuple[type, ...]:
    """The base class of each runner's processors, as far as this vLLM has them."""
    homes, found = ("vllm.v1.sample.logits_processor", "vllm.v1.worker.gpu.sample.logits_processor"), []
    for home in homes:
        with contextlib.suppress(ImportError, AttributeError):
            found.append(importlib.import_module(home).LogitsProcessor)
    if not found:
        raise Unsupported(
            f"vLLM has its logits processors at neither {homes[0]} nor {homes[1]}: tokenpo's logits processor ran with "
            "vLLM 0.31 to 0.33; install one of those versions, or switch the adaptive temperature off"
        )
    return tuple(found)


class AdaptiveTemperatureProcessor(*_bases()):
    """V1's runner makes it with (config, device, pinned memory or not), V2's with (config, states of the requests)."""

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        require_processed(vllm_config)
        self.chosen: Any = V1Rows(*runner) if len(runner) == 2 else V2Slots(*runner)

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        check(sampling_params.temperature, sampling_params.min_p, sampling_params.extra_args)

    def apply(self, logits: Tensor, *context: Any) -> Tensor:
        return self.chosen.apply(logits, *context)

    def is_argmax_invariant(self) -> bool:
        return self.chosen.is_argmax_invariant()

    def update_state(self, batch_update: Any) -> None:
        self.chosen.update_state(batch_update)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        return self.chosen.add_request(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        self.chosen.apply_staged_writes()

"""One class to name to vLLM, whichever of its two runners a model gets.

The runners take different processors and refuse each other's, and vLLM decides late which one runs: so this class is of
both kinds, as far as the installed version has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from . import contract
from .runners import V1Rows, V2Slots, check

if TYPE_CHECKING:
    from vllm import SamplingParams  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]


class AdaptiveTemperatureProcessor(*contract.bases()):
    """V1's runner makes it with (config, device, pinned memory or not), V2's with (config, states of the requests).

    Raises:
        Unsupported: the interface of that runner moved, or vLLM would report other log-probabilities.
    """

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        # Checked here: an interface that moved concerns its own runner alone.
        kind, chosen = ("v1", V1Rows) if len(runner) == 2 else ("v2", V2Slots)
        contract.require_runner(kind)
        contract.require_processed(vllm_config)
        self.chosen: Any = chosen(*runner)

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

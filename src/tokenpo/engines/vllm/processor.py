"""One class to name to vLLM, whichever of its two runners a model gets.

The runners take different processors and refuse each other's, and vLLM decides late which one runs: by platform, model
and environment. So this class is of both kinds as far as the installed version has them, and becomes one of them when a
runner makes it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...base.errors import Unsupported
from .parameters import check

if TYPE_CHECKING:
    from vllm import SamplingParams  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

_HOMES = {"v1": "vllm.v1.sample.logits_processor", "v2": "vllm.v1.worker.gpu.sample.logits_processor"}


def _bases() -> dict[str, type]:
    """The base class of each runner's processors, as far as this vLLM has them."""
    found = {}
    for runner, home in _HOMES.items():
        try:
            found[runner] = importlib.import_module(home).LogitsProcessor
        except (ImportError, AttributeError):
            continue
    if not found:
        raise Unsupported(
            f"vLLM has its logits processors at neither {_HOMES['v1']} nor {_HOMES['v2']}: install vllm 0.33.0, or "
            "switch the adaptive temperature off"
        )
    return found


class AdaptiveTemperatureProcessor(*_bases().values()):
    """V1's runner makes it with (config, device, pinned memory or not), V2's with (config, states of the requests).

    Raises:
        Unsupported: the interface of that runner moved, or vLLM would report other log-probabilities.
    """

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        # Imported here: an interface that moved is the trouble of its own runner alone.
        if len(runner) == 2:
            from .v1 import AdaptiveTemperatureV1 as Chosen
        else:
            from .v2 import AdaptiveTemperatureV2 as Chosen
        self.chosen: Any = Chosen(vllm_config, *runner)

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

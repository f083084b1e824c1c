"""The logits processor to name to vLLM, for both of its model runners.

The two runners take processors of different classes, and vLLM chooses the runner late. So this class inherits from
both, as far as the installed version has them.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...base.errors import Unsupported
from .runners import V1Rows, V2Slots, check, require_processed

if TYPE_CHECKING:
    from vllm import SamplingParams  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]


# Runner -> (its module in vLLM, the interface that we use): all arguments of a method in order; members that a data
# class or an enumeration must have.
INTERFACES: dict[type, tuple[str, dict[str, str]]] = {
    V1Rows: ("vllm.v1.sample.logits_processor", {
        "LogitsProcessor.__init__": "vllm_config device is_pin_memory",
        "LogitsProcessor.validate_params": "sampling_params",
        "LogitsProcessor.apply": "logits",
        "LogitsProcessor.is_argmax_invariant": "",
        "LogitsProcessor.update_state": "batch_update",
        "BatchUpdate": "removed added moved",
        "MoveDirectionality": "SWAP",
    }),
    V2Slots: ("vllm.v1.worker.gpu.sample.logits_processor", {
        "LogitsProcessor.__init__": "vllm_config req_states",
        "LogitsProcessor.validate_params": "sampling_params",
        "LogitsProcessor.add_request": "req_idx sampling_params",
        "LogitsProcessor.apply_staged_writes": "",
        "LogitsProcessor.apply": "logits ctx",
        "LogitsContext": "expanded_idx_mapping idx_mapping_np",
        "LogitsProcRequestState": "device max_num_reqs",
    }),
}  # fmt: skip


def _bases() -> tuple[type, ...]:
    """The processor base classes of the runners that this vLLM has."""
    bases = []
    for home, _ in INTERFACES.values():
        with contextlib.suppress(ImportError, AttributeError):
            bases.append(importlib.import_module(home).LogitsProcessor)
    if not bases:
        raise _moved("logits processors are at neither " + " nor ".join(home for home, _ in INTERFACES.values()))
    return tuple(bases)


def _require(runner: type) -> None:
    """Raises Unsupported if the interface of this runner has changed."""
    home, uses = INTERFACES[runner]
    for name, used in uses.items():
        thing: Any = importlib.import_module(home)
        for key in name.split("."):
            thing = getattr(thing, key, None)
        if thing is None:
            raise _moved(f"{home}.{name} is gone")
        names = getattr(thing, "__members__", None) or inspect.signature(thing).parameters
        actual, expected = [name for name in names if name != "self"], used.split()
        if actual != expected if "." in name else set(expected) - set(actual):
            raise _moved(f"{home}.{name} has ({', '.join(actual)}), not ({', '.join(expected)})")


def _moved(what: str) -> Unsupported:
    version = getattr(sys.modules.get("vllm"), "__version__", "another")
    return Unsupported(
        f"vLLM's {what}: tokenpo's logits processor ran with vLLM 0.31 to 0.33 and this is {version}; install one of "
        "those versions, or switch the adaptive temperature off"
    )


class AdaptiveTemperatureProcessor(*_bases()):
    """Applies the adaptive temperature in vLLM.

    V1's runner creates it with (config, device, is_pin_memory), V2's with (config, request states).

    Raises:
        Unsupported: the runner's interface changed, or vLLM would report log-probabilities of another distribution.
    """

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        chosen = V1Rows if len(runner) == 2 else V2Slots
        _require(chosen)  # not at import: a changed interface matters only for the runner in use
        require_processed(vllm_config)
        self.chosen: Any = chosen(*runner)

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        check(sampling_params.temperature, sampling_params.min_p, sampling_params.extra_args)

    def apply(self, logits: Tensor, *context: Any) -> Tensor:
        return self.chosen.apply(logits, *context)

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: Any) -> None:
        self.chosen.update_state(batch_update)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        return self.chosen.add_request(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        self.chosen.apply_staged_writes()

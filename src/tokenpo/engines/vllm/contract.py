"""What the processor builds on in vLLM's interfaces, checked before it is used: these surfaces are young."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from ...base.errors import Unsupported

RAN = "0.31 to 0.33"
HOMES = {"v1": "vllm.v1.sample.logits_processor", "v2": "vllm.v1.worker.gpu.sample.logits_processor"}
# Runner -> method of its LogitsProcessor -> the names of its arguments, self and cls left out.
METHODS: dict[str, dict[str, tuple[str, ...]]] = {
    "v1": {
        "__init__": ("vllm_config", "device", "is_pin_memory"),
        "validate_params": ("sampling_params",),
        "apply": ("logits",),
        "is_argmax_invariant": (),
        "update_state": ("batch_update",),
    },
    "v2": {
        "__init__": ("vllm_config", "req_states"),
        "validate_params": ("sampling_params",),
        "add_request": ("req_idx", "sampling_params"),
        "apply_staged_writes": (),
        "apply": ("logits", "ctx"),
    },
}
# Runner -> data class beside it -> fields that are read.
FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "v1": {"BatchUpdate": ("batch_size", "removed", "added", "moved")},
    "v2": {
        "LogitsContext": ("expanded_idx_mapping", "idx_mapping_np"),
        "LogitsProcRequestState": ("device", "max_num_reqs"),
    },
}


def bases() -> tuple[type, ...]:
    """The base class of each runner's processors, as far as this vLLM has them."""
    found = []
    for home in HOMES.values():
        try:
            found.append(importlib.import_module(home).LogitsProcessor)
        except (ImportError, AttributeError):
            continue
    if not found:
        raise Unsupported(f"vLLM has its logits processors at neither {HOMES['v1']} nor {HOMES['v2']}: {_remedy()}")
    return tuple(found)


def require_runner(runner: str) -> None:
    """Raises Unsupported, with one sentence, where what a runner hands over has changed."""
    home = importlib.import_module(HOMES[runner])
    require(home.LogitsProcessor, METHODS[runner])
    for name, fields in FIELDS[runner].items():
        require_fields(getattr(home, name, None), name, *fields)
    if runner == "v1" and not hasattr(getattr(home, "MoveDirectionality", None), "SWAP"):
        raise Unsupported(f"{HOMES[runner]}.MoveDirectionality.SWAP is gone: {_remedy()}")


def require(owner: Any, expected: Mapping[str, tuple[str, ...]]) -> None:
    """Raises Unsupported where a method of a class of vLLM is gone or takes other arguments."""
    for name, arguments in expected.items():
        method = getattr(owner, name, None)
        found = None if method is None else _arguments(method)
        if found != arguments:
            what = "is gone" if found is None else f"takes ({', '.join(found)}), not ({', '.join(arguments)})"
            raise Unsupported(f"vLLM's {owner.__module__}.{owner.__qualname__}.{name} {what}: {_remedy()}")


def require_fields(owner: Any, name: str, *fields: str) -> None:
    """Raises Unsupported where a data class of vLLM, of this name, is gone or has lost one of these fields."""
    for field in fields:
        if field not in getattr(owner, "__dataclass_fields__", {}):
            raise Unsupported(f"vLLM's {name} has no field {field}: {_remedy()}")


def require_processed(vllm_config: Any) -> None:
    """Raises Unsupported where the log-probabilities that vLLM returns would leave out temperature and processor."""
    mode = vllm_config.model_config.logprobs_mode
    if not str(mode).startswith("processed"):
        raise Unsupported(
            f"vLLM runs with logprobs_mode={mode!r}, which reports probabilities of another distribution than the "
            'adaptive temperature samples from: set logprobs_mode="processed_logprobs"'
        )


def _arguments(method: Any) -> tuple[str, ...]:
    names = tuple(inspect.signature(method).parameters)
    return names[1:] if names[:1] in (("self",), ("cls",)) else names


def _remedy() -> str:
    import vllm  # pyright: ignore[reportMissingImports]

    version = getattr(vllm, "__version__", "of an unknown version")
    return (
        f"tokenpo's logits processor ran with vLLM {RAN} and this is {version}; install one of those versions, or "
        "switch the adaptive temperature off"
    )

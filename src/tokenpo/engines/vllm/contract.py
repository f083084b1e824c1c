"""The parts of vLLM's young interfaces that the processor builds on, checked before use."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from typing import Any

from ...base.errors import Unsupported

RAN = "0.31 to 0.33"
HOMES = {"v1": "vllm.v1.sample.logits_processor", "v2": "vllm.v1.worker.gpu.sample.logits_processor"}
# Runner -> the arguments of a method, without self and cls; fields of a data class or members of an enumeration, of
# which there may be more.
SURFACES: dict[str, dict[str, tuple[str, ...]]] = {
    "v1": {
        "LogitsProcessor.__init__": ("vllm_config", "device", "is_pin_memory"),
        "LogitsProcessor.validate_params": ("sampling_params",),
        "LogitsProcessor.apply": ("logits",),
        "LogitsProcessor.is_argmax_invariant": (),
        "LogitsProcessor.update_state": ("batch_update",),
        "BatchUpdate": ("batch_size", "removed", "added", "moved"),
        "MoveDirectionality": ("SWAP",),
    },
    "v2": {
        "LogitsProcessor.__init__": ("vllm_config", "req_states"),
        "LogitsProcessor.validate_params": ("sampling_params",),
        "LogitsProcessor.add_request": ("req_idx", "sampling_params"),
        "LogitsProcessor.apply_staged_writes": (),
        "LogitsProcessor.apply": ("logits", "ctx"),
        "LogitsContext": ("expanded_idx_mapping", "idx_mapping_np"),
        "LogitsProcRequestState": ("device", "max_num_reqs"),
    },
}


def bases() -> tuple[type, ...]:
    """The base class of each runner's processors, as far as this vLLM has them."""
    found = []
    for home in HOMES.values():
        with contextlib.suppress(ImportError, AttributeError):
            found.append(importlib.import_module(home).LogitsProcessor)
    if not found:
        raise Unsupported(f"vLLM has its logits processors at neither {HOMES['v1']} nor {HOMES['v2']}: {_remedy()}")
    return tuple(found)


def require_runner(runner: str) -> None:
    """Raises Unsupported where the interface of a runner has changed."""
    home = importlib.import_module(HOMES[runner])
    for name, expected in SURFACES[runner].items():
        found = _surface(home, name)
        same = found is not None and (found == expected if "." in name else set(expected) <= set(found))
        if not same:
            what = "is gone" if found is None else f"has ({', '.join(found)}), not ({', '.join(expected)})"
            raise Unsupported(f"vLLM's {HOMES[runner]}.{name} {what}: {_remedy()}")


def require_processed(vllm_config: Any) -> None:
    """Raises Unsupported where the log-probabilities that vLLM returns would leave out temperature and processor."""
    mode = vllm_config.model_config.logprobs_mode
    if not str(mode).startswith("processed"):
        raise Unsupported(
            f"vLLM runs with logprobs_mode={mode!r}, which reports probabilities of another distribution than the "
            'adaptive temperature samples from: set logprobs_mode="processed_logprobs"'
        )


def _surface(home: Any, name: str) -> tuple[str, ...] | None:
    """Arguments of a method, fields of a data class, members of an enumeration; None where there is no such thing."""
    owner, _, method = name.partition(".")
    thing = getattr(home, owner, None)
    if not method:
        fields = getattr(thing, "__dataclass_fields__", None) or getattr(thing, "__members__", ())
        return None if thing is None else tuple(fields)
    thing = getattr(thing, method, None)
    if thing is None:
        return None
    names = tuple(inspect.signature(thing).parameters)
    return names[1:] if names[:1] in (("self",), ("cls",)) else names


def _remedy() -> str:
    import vllm  # pyright: ignore[reportMissingImports]

    version = getattr(vllm, "__version__", "of an unknown version")
    return (
        f"tokenpo's logits processor ran with vLLM {RAN} and this is {version}; install one of those versions, or "
        "switch the adaptive temperature off"
    )

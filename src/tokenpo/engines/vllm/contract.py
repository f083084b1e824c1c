"""What the processors build on in vLLM's interfaces, checked before it is used: these surfaces are young."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ...base.errors import Unsupported

TRIED = "0.33.0"


def require(owner: Any, expected: Mapping[str, tuple[str, ...]]) -> None:
    """Raises Unsupported, with one sentence, where a method of `owner` is gone or takes other arguments.

    Args:
        owner: a class of vLLM.
        expected: method to the names of its arguments, self and cls left out.
    """
    for name, arguments in expected.items():
        method = getattr(owner, name, None)
        found = None if method is None else _arguments(method)
        if found != arguments:
            what = "is gone" if found is None else f"takes ({', '.join(found)}), not ({', '.join(arguments)})"
            raise Unsupported(f"{_place(owner)}.{name} {what}: {_remedy()}")


def require_fields(owner: Any, *names: str) -> None:
    """Raises Unsupported where a data class of vLLM has lost one of these fields."""
    fields = getattr(owner, "__dataclass_fields__", {})
    for name in names:
        if name not in fields:
            raise Unsupported(f"{_place(owner)} has no field {name}: {_remedy()}")


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


def _place(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}"


def _remedy() -> str:
    import vllm  # pyright: ignore[reportMissingImports]

    version = getattr(vllm, "__version__", "of an unknown version")
    return (
        f"tokenpo's logits processor was written for vLLM {TRIED} and this is {version}; install that "
        "version, or switch the adaptive temperature off"
    )

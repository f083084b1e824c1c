"""What differs between the supported clients, tinker 0.24 to 0.38: the address, the key, and what a call returns."""

from __future__ import annotations

import os
from typing import Any

DEFAULT = "https://tinker.thinkingmachines.dev/services/tinker-prod"


def address(given: str | None) -> str:
    """Of the server: what is given, else TINKER_BASE_URL, else the service."""
    return (given or os.environ.get("TINKER_BASE_URL") or DEFAULT).rstrip("/")


def has_key() -> bool:
    """Whether the client finds a key; the first of these versions have no `tinker.auth` and read variables alone."""
    try:
        from tinker.auth import tinker_has_credentials
    except ImportError:
        return any(os.environ.get(name) for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD"))
    return tinker_has_credentials()


def value(answer: Any) -> Any:
    """What a call gave: since 0.38 the calls that make a client return a future, too."""
    return answer.result() if hasattr(answer, "result") else answer

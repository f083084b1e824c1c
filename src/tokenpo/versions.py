"""The software that a result depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "tokenpo",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "peft",
    "reasoning-gym",
    "math-verify",
)


def versions() -> dict[str, Any]:
    """Python, the machine and the packages; None for a package that is not installed."""
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found

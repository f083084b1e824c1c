"""The software that a result depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..core.ops.residual import compiler

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


def versions(*more: str) -> dict[str, Any]:
    """Python, the machine, the C compiler of the kernels and the packages; None for what is not there or not used.

    Args:
        more: distributions beside those that every run depends on.
    """
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.platform(), "cc": compiler()}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found

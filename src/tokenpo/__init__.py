"""tokenpo: token-level policy optimisation for reinforcement learning with verifiable rewards of language models.

Names are loaded when they are first used, so that the command line can answer `--help` without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import methods
    from .check import check_method
    from .coefficient import coefficients
    from .errors import MissingInput, TokenPOError, UnknownName, Unsupported
    from .methods import method
    from .objective import Objective
    from .types import Batch, Credit, Loss, Policy, Rollouts, Totals

__version__ = "0.1.0"

# Public name -> module that defines it.
_HOME = {
    "Batch": "types",
    "Credit": "types",
    "Loss": "types",
    "MissingInput": "errors",
    "Objective": "objective",
    "Policy": "types",
    "Rollouts": "types",
    "TokenPOError": "errors",
    "Totals": "types",
    "UnknownName": "errors",
    "Unsupported": "errors",
    "check_method": "check",
    "coefficients": "coefficient",
    "method": "methods",
}
_MODULES = ("check", "coefficient", "errors", "methods", "objective", "ops", "signals", "stages", "types")

__all__ = [
    "Batch",
    "Credit",
    "Loss",
    "MissingInput",
    "Objective",
    "Policy",
    "Rollouts",
    "TokenPOError",
    "Totals",
    "UnknownName",
    "Unsupported",
    "check_method",
    "coefficients",
    "method",
    "methods",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""tokenpo: token-level policy optimisation for reinforcement learning with verifiable rewards of language models.

Names are imported when they are first used, so that the command line can answer `--help` without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import methods
    from .base import errors as errors
    from .base.errors import MissingInput, TokenPOError, UnknownName, Unsupported
    from .core import ops as ops
    from .core import parts as parts
    from .core import ranges as ranges
    from .core import types as types
    from .core.head.fused import fused_loss
    from .core.head.token_stats import stats_from_logits, token_stats
    from .core.laws import check_method
    from .core.learner import Learner
    from .core.negotiation import negotiate
    from .core.objective import Objective
    from .core.on_policy import KLHold, RatioCheck
    from .core.types import Batch, Credit, Loss, Policy, Rollouts, Totals
    from .methods import method
    from .methods.extensions import corrected, with_teacher
    from .train.models.directory import locate

__version__ = "0.1.0"

# Public name -> module that defines it.
_HOME = {
    "Batch": "core.types",
    "Credit": "core.types",
    "KLHold": "core.on_policy",
    "Learner": "core.learner",
    "Loss": "core.types",
    "MissingInput": "base.errors",
    "Objective": "core.objective",
    "Policy": "core.types",
    "RatioCheck": "core.on_policy",
    "Rollouts": "methods",
    "TokenPOError": "base.errors",
    "Totals": "core.types",
    "UnknownName": "base.errors",
    "Unsupported": "base.errors",
    "check_method": "core.laws",
    "corrected": "methods.extensions",
    "fused_loss": "core.head.fused",
    "locate": "train.models.directory",
    "method": "methods",
    "negotiate": "core.negotiation",
    "stats_from_logits": "core.head.token_stats",
    "token_stats": "core.head.token_stats",
    "with_teacher": "methods.extensions",
}
# Public module -> its path in the package.
_MODULES = {
    "errors": "base.errors",
    "methods": "methods",
    "ops": "core.ops",
    "parts": "core.parts",
    "ranges": "core.ranges",
    "types": "core.types",
}

__all__ = [
    "Batch",
    "Credit",
    "KLHold",
    "Learner",
    "Loss",
    "MissingInput",
    "Objective",
    "Policy",
    "RatioCheck",
    "Rollouts",
    "TokenPOError",
    "Totals",
    "UnknownName",
    "Unsupported",
    "check_method",
    "corrected",
    "fused_loss",
    "locate",
    "method",
    "methods",
    "negotiate",
    "stats_from_logits",
    "token_stats",
    "with_teacher",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{_MODULES[name]}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})

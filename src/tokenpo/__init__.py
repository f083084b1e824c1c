"""tokenpo: token-level policy optimisation for reinforcement learning with verifiable rewards of language models."""

from . import methods
from .check import check_method
from .errors import MissingInput, TokenPOError, UnknownName, Unsupported
from .methods import method
from .objective import Objective
from .types import Batch, Credit, Loss, Policy, Rollouts, Totals

__version__ = "0.1.0"

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
    "method",
    "methods",
]

"""TRL as an engine: `TokenPOTrainer` is TRL's `GRPOTrainer` with an objective of ours in place of its loss."""

from __future__ import annotations

from . import contract

contract.check_import()

from .config import TokenPOConfig  # noqa: E402 - only behind the check, whose message says what is wrong with TRL
from .trainer import TokenPOTrainer  # noqa: E402

__all__ = ["TokenPOConfig", "TokenPOTrainer"]

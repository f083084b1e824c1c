"""Trainer and settings under TRL's names, for `tokenpo.trl`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .config import TokenPOConfig, setting
from .trainer import TokenPOTrainer


@dataclass
class GRPOConfig(TokenPOConfig):
    """TRL's `GRPOConfig`, with which TRL's own loss is trained until `method` names another; raises as `TokenPOConfig`.

    Without a method also Unsupported: a setting of TRL's loss that no method computes.
    """

    method: str | None = setting(None, "Name of the method; None: the one that computes TRL's own loss.")


class GRPOTrainer(TokenPOTrainer):
    """TRL's `GRPOTrainer`; arguments and errors are those of `TokenPOTrainer`."""

    config_class: ClassVar[type[TokenPOConfig]] = GRPOConfig

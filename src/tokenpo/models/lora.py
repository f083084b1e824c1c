"""Low-rank adapters around a model (peft)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..base.errors import TokenPOError
from ..base.text import first_line


@dataclass(frozen=True)
class LoraOptions:
    """Low-rank adapters trained in place of the weights (needs peft).

    Args:
        rank: inner dimension.
        alpha: the update is scaled by alpha / rank.
        targets: names of the adapted linear layers, or "all-linear".
        dropout: on the adapter's input, in training mode only; 0 scores tokens as they were sampled.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: str | tuple[str, ...] = "all-linear"
    dropout: float = 0.0


def adapted(model: Any, options: LoraOptions, where: str) -> Any:
    """The PeftModel around a model, whose layers it changes in place; `where` is the model's path, for messages.

    Raises:
        TokenPOError: peft is not installed, or targets do not exist or cannot be merged.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise TokenPOError("LoRA needs the package peft: pip install 'tokenpo[lora]'") from error
    targets = options.targets if isinstance(options.targets, str) else list(options.targets)
    alpha: Any = options.alpha
    config = LoraConfig(
        r=options.rank, lora_alpha=alpha, lora_dropout=options.dropout, target_modules=targets, task_type="CAUSAL_LM"
    )
    tied = _tied(model)
    try:
        adapter = get_peft_model(model, config)
    except ValueError as error:
        raise TokenPOError(f"LoRA targets {options.targets!r}: {first_line(error)}") from error
    if hit := sorted(tied.intersection(adapter.targeted_module_names)):
        raise TokenPOError(
            f"LoRA targets {options.targets!r}: in the model in {where} the weights of {hit[0]} are tied to another "
            "layer's, so the merged model would not be the one that was trained: leave it out of model.lora.targets"
        )
    return adapter


def _tied(model: torch.nn.Module) -> set[str]:
    """Names of the layers that share a weight with another, such as a head that is the embedding."""
    owners: dict[torch.nn.Parameter, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        owners.setdefault(weight, []).append(name.rpartition(".")[0])
    return {name for names in owners.values() if len(names) > 1 for name in names}

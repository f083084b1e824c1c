"""The model that a recipe names, loaded."""

from __future__ import annotations

import torch

from .. import models as language
from ..core.seeds import keyed_seed
from ..models import LanguageModel, LoraOptions
from .config import Config


def load_model(config: Config) -> LanguageModel:
    """With the recipe's dtype and adapters, on its device; the adapters' first factors follow from its seed."""
    options = config.model
    lora = options.lora
    adapters = None
    if lora is not None:
        targets = lora.targets if isinstance(lora.targets, str) else tuple(lora.targets)
        adapters = LoraOptions(lora.rank, lora.alpha, targets)
    with torch.random.fork_rng():
        # LoRA's first factors come from the global generator.
        torch.manual_seed(keyed_seed(config.seed, "model"))
        return language.load(language.locate(options.path), dtype=options.dtype, device=options.device, lora=adapters)

"""Local language models: directories, sampling, scoring, LoRA."""

from __future__ import annotations

from .directory import locate
from .group_stats import collision, divergence, influence, prompt_logprob, require_plain_head
from .lora import LoraOptions
from .model import LanguageModel, load, save, save_adapter
from .sampler import Samples, Sampling, require_room, sample
from .score import score
from .vocabulary import Vocabulary

__all__ = [
    "LanguageModel",
    "LoraOptions",
    "Samples",
    "Sampling",
    "Vocabulary",
    "collision",
    "divergence",
    "influence",
    "load",
    "locate",
    "prompt_logprob",
    "require_plain_head",
    "require_room",
    "sample",
    "save",
    "save_adapter",
    "score",
]

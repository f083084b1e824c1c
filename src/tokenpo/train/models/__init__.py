"""Local language models: directories, sampling, scoring, LoRA."""

from .directory import locate
from .model import LanguageModel, LoraOptions, load, save, save_adapter
from .sampler import Samples, Sampling, require_room, sample
from .score import score
from .vocabulary import Vocabulary

__all__ = [
    "LanguageModel", "LoraOptions", "Samples", "Sampling", "Vocabulary", "load", "locate", "require_room", "sample",
    "save", "save_adapter", "score",
]  # fmt: skip

"""Local language models: load and save Hugging Face directories, sample from them, score tokens under them."""

from __future__ import annotations

from tokenpo.lm.directory import locate
from tokenpo.lm.model import LanguageModel, LoraOptions, load, save
from tokenpo.lm.sampler import Samples, Sampling, sample
from tokenpo.lm.score import score

__all__ = ["LanguageModel", "LoraOptions", "Samples", "Sampling", "load", "locate", "sample", "save", "score"]

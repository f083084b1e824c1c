"""Local language models: load and save Hugging Face directories, sample from them, score tokens under them."""

from __future__ import annotations

from tokenpo.lm.directory import locate
from tokenpo.lm.group_stats import divergence, influence, prompt_logprob, require_plain_head
from tokenpo.lm.lora import LoraOptions
from tokenpo.lm.model import LanguageModel, load, save
from tokenpo.lm.sampler import Samples, Sampling, require_room, sample
from tokenpo.lm.score import score

__all__ = [
    "LanguageModel",
    "LoraOptions",
    "Samples",
    "Sampling",
    "divergence",
    "influence",
    "load",
    "locate",
    "prompt_logprob",
    "require_plain_head",
    "require_room",
    "sample",
    "save",
    "score",
]

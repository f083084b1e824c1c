"""Tiny random models and a character tokenizer, saved as ordinary Hugging Face directories."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from tokenpo.train.models import LanguageModel, load

CHARACTERS = "0123456789+-*/=#;. "
COMMON: dict[str, Any] = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
}
GPT2_SHAPE: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
CONFIGS: dict[str, Callable[..., Any]] = {
    "qwen3": lambda **k: Qwen3Config(**SHAPE, tie_word_embeddings=True, **k),
    "qwen2": lambda **k: Qwen2Config(**SHAPE, **k),
    "llama": lambda **k: LlamaConfig(**SHAPE, attention_bias=True, **k),
    "mistral_window": lambda **k: MistralConfig(**SHAPE, sliding_window=6, **k),
    "gemma2_softcap": lambda **k: Gemma2Config(**SHAPE, sliding_window=64, query_pre_attn_scalar=8, **k),
    "cohere2_scale": lambda **k: Cohere2Config(**SHAPE, logit_scale=0.25, layer_types=["full_attention"] * 2, **k),
    "gpt2": lambda **k: GPT2Config(**GPT2_SHAPE, **k),
}


def character_tokenizer(pad: str | None = "<pad>") -> PreTrainedTokenizerFast:
    vocabulary = {piece: i for i, piece in enumerate(["<pad>", "<eos>", "<end>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token=pad)


@pytest.fixture(scope="session")
def make_model(tmp_path_factory) -> Callable[..., Path]:
    """make_model("qwen3", eos=[1, 2], pad=None, seed=0) -> directory; weights are scaled up to give sharp choices."""
    made: dict[Any, Path] = {}

    def make(family: str = "qwen3", *, eos: tuple[int, ...] = (1,), pad: str | None = "<pad>", seed: int = 0) -> Path:
        key = (family, eos, pad, seed)
        if key not in made:
            path = tmp_path_factory.mktemp(family)
            torch.manual_seed(seed)
            config = CONFIGS[family](vocab_size=3 + len(CHARACTERS), **COMMON)
            model = AutoModelForCausalLM.from_config(config)
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.data.mul_(3.0)
            model.generation_config.eos_token_id = list(eos)
            model.save_pretrained(path)
            character_tokenizer(pad).save_pretrained(path)
            made[key] = path
        return made[key]

    return make


@pytest.fixture
def lm(make_model) -> LanguageModel:
    return load(make_model())


@pytest.fixture
def load_family(make_model) -> Callable[..., LanguageModel]:
    return lambda family="qwen3", **options: load(make_model(family, **options))


@pytest.fixture
def prompts() -> list[list[int]]:
    """Five prompts of unequal length."""
    g = torch.Generator().manual_seed(5)
    return [torch.randint(3, 20, (n,), generator=g).tolist() for n in (3, 9, 1, 6, 9)]

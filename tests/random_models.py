"""Random models of a few thousand parameters, as directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def random_qwen(directory: Path, head_dim: int = 8) -> Path:
    """A model of the family that the package ships; vLLM's attention on a CPU wants heads of 32."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=259, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=head_dim, max_position_embeddings=64, tie_word_embeddings=True,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # Large enough that the entropy differs from token to token and a response ends now and then.
                parameter.normal_(0.0, 0.5, generator=generator)
    return _written(model, directory)


def random_llama(directory: Path) -> Path:
    """A head of its own, and heads of 32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=259, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, initializer_range=0.25,
    )  # fmt: skip
    return _written(LlamaForCausalLM(config), directory)


def random_phi(directory: Path) -> Path:
    """A head of its own, with a bias."""
    from transformers import PhiConfig, PhiForCausalLM

    torch.manual_seed(0)
    config = PhiConfig(
        vocab_size=259, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.5, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0,
    )  # fmt: skip
    model = PhiForCausalLM(config)
    torch.nn.init.normal_(model.lm_head.bias)
    return _written(model, directory)


def random_gpt2(directory: Path) -> Path:
    """An architecture without a single float32 cast inside, for gradients that are exact in float64."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=259, n_embd=16, n_layer=2, n_head=2, n_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        initializer_range=0.5, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return _written(GPT2LMHeadModel(config), directory)


def _written(model: Any, directory: Path) -> Path:
    """A sixth of all tokens ends a response, so that lengths differ even in random text."""
    from tokenpo.models.tiny import tokenizer

    model.generation_config.eos_token_id = list(range(2, 259, 6))
    model.save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory

"""Random models of a few thousand parameters, as directories."""

from pathlib import Path
from typing import Any

import torch

TOKENS = {"vocab_size": 259, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHAPE = {"intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}


def random_qwen(directory: Path, head_dim: int = 8) -> Path:
    """A model of the family that the package ships; vLLM's attention on a CPU wants heads of 32."""
    model = _model("qwen3", hidden_size=16, num_key_value_heads=1, head_dim=head_dim, tie_word_embeddings=True, **SHAPE)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # Large enough that the entropy differs from token to token and a response ends now and then.
                parameter.normal_(0.0, 0.5, generator=generator)
    return _written(model, directory)


def random_experts(directory: Path) -> Path:
    """A mixture of four experts, two for a token."""
    torch.manual_seed(0)
    experts = {"moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1}
    own = {"hidden_size": 16, "num_key_value_heads": 1, "head_dim": 8, "initializer_range": 0.5}
    return _written(_model("qwen3_moe", **own, **experts, **SHAPE), directory)


def random_llama(directory: Path) -> Path:
    """A head of its own, and attention heads of 32."""
    torch.manual_seed(0)
    own = {"hidden_size": 64, "num_key_value_heads": 1, "head_dim": 32, "tie_word_embeddings": False}
    return _written(_model("llama", initializer_range=0.25, **own, **SHAPE), directory)


def random_gpt2(directory: Path) -> Path:
    """An architecture without a single float32 cast inside, for gradients that are exact in float64."""
    torch.manual_seed(0)
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return _written(_model("gpt2", initializer_range=0.5, **shape, **dropout), directory)


def _model(family: str, **options: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **TOKENS, **options))


def _written(model: Any, directory: Path) -> Path:
    """A sixth of all tokens ends a response, so that lengths differ even in random text."""
    from transformers import AutoTokenizer

    from tokenpo.train.models.directory import ASSETS

    model.generation_config.eos_token_id = list(range(2, 259, 6))
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(ASSETS).save_pretrained(directory)
    return directory

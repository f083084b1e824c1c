"""Writes a model as one GGUF file for llama.cpp: the way back of `gguf_import`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError, UnknownName, Unsupported, nearest
from ...base.files import whole
from .directory import card_data
from .gguf_import import ARCHITECTURES, SPLITTINGS, cuts
from .model import PROBE, LanguageModel, load

# How a matrix is stored, by llama.cpp's names in small letters; vectors stay in float32.
STORED = ("f32", "f16", "bf16", "q8_0")


def export_gguf(directory: str | Path, file: Path, stored: str = "f16") -> dict[str, str]:
    """Writes the model in a directory as GGUF, whole or not at all.

    Args:
        directory: a model directory or a hub id, as `load` reads it; of an architecture of `ARCHITECTURES`.
        file: the .gguf file to write; it may not exist.
        stored: "f32", "f16", "bf16" or "q8_0" (8 bits, blocks of 32 weights).

    Returns:
        Name, architecture, storage, licence (as the model card has it), number of parameters and size of the file.

    Raises:
        TokenPOError: the file exists, or the model cannot be loaded. UnknownName: `stored`. Unsupported: llama.cpp's
            form of the architecture, of its rotary frequencies, of its tokenizer or of a weight is not known here.
    """
    if stored not in STORED:
        raise UnknownName(f"unknown storage {stored!r}: {nearest(stored, STORED)}")
    if file.exists():
        raise TokenPOError(f"{file} exists: choose another name")
    try:
        from gguf import GGUFWriter, LlamaFileType
    except ImportError as error:
        raise TokenPOError("writing GGUF needs the package gguf: pip install 'tokenpo[gguf]'") from error
    lm = load(directory)
    kind = lm.model.config.model_type
    if kind not in ARCHITECTURES:
        raise Unsupported(f"the architecture {kind!r} cannot be written, only {', '.join(ARCHITECTURES)}")
    place = Path(directory)
    licence = card_data(place).get("license")
    about = {
        "name": place.parent.name if place.name == "model" else place.name,
        "architecture": kind,
        "stored": stored,
        "licence": str(licence or "not named in README.md"),
    }
    with whole(file) as part:
        writer = GGUFWriter(part, kind)
        writer.add_name(about["name"])
        writer.add_file_type(LlamaFileType["ALL_F32" if stored == "f32" else f"MOSTLY_{stored.upper()}"])
        if licence:
            writer.add_license(about["licence"])
        _put_config(writer, lm.model.config)
        _put_tokenizer(writer, lm)
        for name, weight in _named(lm.model, kind):
            _put_tensor(writer, name, weight, stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return about | {"parameters": f"{lm.model.num_parameters():,}", "bytes": f"{file.stat().st_size:,}"}


def _put_config(writer: Any, config: Any) -> None:
    rope = getattr(config, "rope_parameters", None) or {}
    plain = {"rope_type": ("default", None), "hidden_act": ("silu",), "use_sliding_window": (False, None)}
    given = {"rope_type": rope.get("rope_type"), **{name: getattr(config, name, None) for name in list(plain)[1:]}}
    if found := [f"{name} = {value!r}" for name, value in given.items() if value not in plain[name]]:
        raise Unsupported(f"a model with {', '.join(found)} cannot be written as GGUF")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    head = _head_size(config)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(rope.get("rope_theta", 10_000.0))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def _head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _put_tokenizer(writer: Any, lm: LanguageModel) -> None:
    from gguf import TokenType

    tokenizer, size = lm.tokenizer, lm.model.config.vocab_size
    written = json.loads(tokenizer.backend_tokenizer.to_str())
    added = tokenizer.added_tokens_decoder
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    if max(tokens) >= size:
        raise Unsupported(f"the tokenizer has the token number {max(tokens)}, and the model embeds {size} tokens")
    # Rows of the embedding without a token, as in padded vocabularies.
    texts = [tokens.get(number, f"[PAD{number}]") for number in range(size)]

    def kind(number: int) -> Any:
        if number not in tokens:
            return TokenType.UNUSED
        if number not in added:
            return TokenType.NORMAL
        return TokenType.CONTROL if added[number].special else TokenType.USER_DEFINED

    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_rule(tokenizer, written))
    writer.add_token_list(texts)
    writer.add_token_types([kind(number) for number in range(size)])
    writer.add_token_merges([x if isinstance(x, str) else " ".join(x) for x in written["model"]["merges"]])
    ids = {
        "bos": tokenizer.bos_token_id,
        "eos": tokenizer.eos_token_id,
        "pad": lm.pad_id,
        "unk": tokenizer.unk_token_id,
    }
    for name, number in ids.items():
        if number is not None:
            getattr(writer, f"add_{name}_token_id")(number)
    writer.add_add_bos_token(tokenizer.bos_token_id is not None and tokenizer("a")["input_ids"][0] == ids["bos"])
    template = tokenizer.chat_template
    if isinstance(template, Mapping):
        template = template.get("default")
    if template:
        writer.add_chat_template(template)


def _rule(tokenizer: Any, written: Mapping[str, Any]) -> str:
    """llama.cpp's name for the rule by which a byte-level tokenizer cuts texts."""
    from tokenizers import pre_tokenizers

    if written["model"]["type"] == "BPE" and "ByteLevel" in json.dumps(written["decoder"]):
        given = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(PROBE)
        for name, split in SPLITTINGS.items():
            same = pre_tokenizers.Sequence(cuts(split)).pre_tokenize_str(PROBE) == given
            if same and split.whole == bool(written["model"].get("ignore_merges")):
                return name
    raise Unsupported(f"the tokenizer cuts texts by none of the rules {', '.join(SPLITTINGS)}")


def _named(model: Any, kind: str) -> list[tuple[str, Tensor]]:
    """The weights under llama.cpp's names; rows of queries and keys in rotary pairs where it wants them so."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    config = model.config
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == kind)
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    head = _head_size(config)
    found = []
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise Unsupported(f"the weight {name} has no place in a GGUF of the architecture {kind!r}")
        if ARCHITECTURES[kind].paired and name.split(".")[-2] in ("q_proj", "k_proj"):
            weight = _pairs(weight, head)
        found.append((target, weight))
    return found


def _pairs(weight: Tensor, head: int) -> Tensor:
    """Rows of each head from halves to rotary pairs: the first of each half, the second of each half, ..."""
    return weight.view(-1, 2, head // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _put_tensor(writer: Any, name: str, weight: Tensor, stored: str) -> None:
    from gguf import GGMLQuantizationType, quantize

    values = weight.detach().to("cpu", torch.float32).contiguous().numpy()
    if values.ndim == 1 or stored == "f32":
        writer.add_tensor(name, values)
        return
    if stored == "q8_0" and values.shape[-1] % 32:
        raise Unsupported(f"{name} has rows of {values.shape[-1]} weights, and q8_0 needs a multiple of 32: take f16")
    how = GGMLQuantizationType[stored.upper()]
    writer.add_tensor(name, quantize(values, how), raw_dtype=how)

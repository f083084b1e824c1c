"""Makes a model directory of a GGUF file: weights, config, tokenizer, chat template, generation settings, a model card.

The weights are those of the file, dequantised; nothing is downloaded and no code of the file is run.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from ...base.errors import TokenPOError, UnknownName, Unsupported, nearest
from ...base.files import whole_directory
from .directory import LICENCES

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Architecture:
    """An architecture as GGUF names it.

    Args:
        kind: the model type of transformers.
        paired: the rows of queries and keys are in the order of rotary pairs, which transformers splits in halves.
    """

    kind: str
    paired: bool = False


ARCHITECTURES = {
    "llama": Architecture("llama", paired=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
}
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPLIT = (
    _CONTRACTIONS
    + r"|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Splitting:
    """How a byte-level tokenizer cuts a text before it merges, by the name that llama.cpp gives it.

    Args:
        digits: every digit is a piece.
        pattern: the regular expression of a piece; None is GPT-2's.
        whole: a piece that is a token is not merged from its bytes.
        bos: whether a text begins with BOS if the file doesn't say.
    """

    digits: bool = False
    pattern: str | None = None
    whole: bool = False
    bos: bool = False


SPLITTINGS = {
    "gpt-2": Splitting(),
    "smollm": Splitting(digits=True),
    "qwen2": Splitting(pattern=_SPLIT.format(digits="")),
    "llama-bpe": Splitting(pattern=_SPLIT.format(digits="{1,3}"), whole=True, bos=True),
}


def import_gguf(file: Path, directory: Path, dtype: str = "float32") -> dict[str, str]:
    """Writes a model directory that `load` and transformers read, completely or not at all.

    A licence file beside the GGUF is copied.

    Args:
        file: the .gguf file; a model in one file, of an architecture of `ARCHITECTURES`.
        directory: new or empty.
        dtype: of the weights on disk: "float32", "bfloat16" or "float16". Half precision rounds dequantised weights.

    Returns:
        What the model card says: name, architecture, quantisation, parameters, licence, sha256 of the file.

    Raises:
        TokenPOError: no GGUF file, or the directory is in use; Unsupported: the architecture, its rope scaling, its
            tokenizer or a tensor is not known here. UnknownName: the dtype.
    """
    if dtype not in DTYPES:
        raise UnknownName(f"unknown dtype {dtype!r}: {nearest(dtype, DTYPES)}")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise TokenPOError(f"{directory} exists and is not empty: choose another place")
    fields, tensors = _read(file)
    architecture = _chosen(ARCHITECTURES, fields["general.architecture"], f"the architecture of {file}")
    model = _model(fields, tensors, architecture)
    tokenizer = _tokenizer(fields)
    about = _about(file, fields, tensors, model)
    with whole_directory(directory.absolute()) as fresh:
        model.to(DTYPES[dtype]).save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        (fresh / "README.md").write_text(_card(about, dtype), encoding="utf-8")
        for licence in (file.parent / name for name in LICENCES):
            if licence.is_file():
                shutil.copyfile(licence, fresh / licence.name)
    return about


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a GGUF by name, and its tensors as the package `gguf` reads them."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise TokenPOError("reading GGUF needs the package gguf: pip install 'tokenpo[gguf]'") from error
    if not file.is_file():
        raise TokenPOError(f"there is no file {file}: give a .gguf file")
    try:
        reader = GGUFReader(file)
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise TokenPOError(f"{file} cannot be read as GGUF: {error}; is it whole?") from error
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if "general.architecture" not in fields or int(fields.get("split.count", 1)) > 1:
        raise TokenPOError(f"{file} is no whole model: merge its parts first (llama-gguf-split --merge)")
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def _chosen(known: Mapping[str, Any], name: str, of: str) -> Any:
    if name not in known:
        raise Unsupported(f"{of} is {name!r}, and only {', '.join(known)} can be read: take the model's own directory")
    return known[name]


def _config(fields: Mapping[str, Any], tensors: Mapping[str, Any], architecture: Architecture) -> Any:
    """The config of transformers that the fields describe."""
    prefix = fields["general.architecture"]

    def get(name: str, default: Any = None) -> Any:
        value = fields.get(f"{prefix}.{name}", default)
        if value is None:
            raise Unsupported(f"the file has no field {prefix}.{name}: take the model's own directory")
        return value

    scaling = fields.get(f"{prefix}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in tensors or get("expert_count", 0):
        raise Unsupported(
            f"{prefix} with scaled rotary frequencies or experts cannot be read: take the model's own directory"
        )
    width, heads = get("embedding_length"), get("attention.head_count")
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in _IDS.items()}
    return AutoConfig.for_model(
        architecture.kind,
        architectures=None,
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=width,
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=get("attention.head_count_kv", heads),
        head_dim=get("attention.key_length", width // heads),
        max_position_embeddings=get("context_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": get("rope.freq_base", 10_000.0)},
        tie_word_embeddings="output.weight" not in tensors,
        **{f"{name}_token_id": value for name, value in ids.items() if name != "unk"},
    )


_IDS = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}


def _model(fields: Mapping[str, Any], tensors: Mapping[str, Any], architecture: Architecture) -> Any:
    """The model of transformers in float32, every weight of which is in the file, and every tensor of it used."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    config = _config(fields, tensors, architecture)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == fields["general.architecture"])
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    weights, left, missing = {}, set(tensors), []
    for name, now in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        source = names.get_name(name, try_suffixes=(".weight", ".bias")) or name
        if source not in tensors:
            missing.append(source)
            continue
        left.discard(source)
        weight = _values(tensors[source])
        if architecture.paired and name.split(".")[-2] in ("q_proj", "k_proj"):
            weight = _halves(weight, config.head_dim)
        if weight.shape != now.shape:
            raise Unsupported(f"the tensor {source} has the shape {tuple(weight.shape)}, expected {tuple(now.shape)}")
        weights[name] = weight
    for problem, which in (("lacks", missing), ("has unknown", sorted(left))):
        if which:
            raise Unsupported(f"the file {problem} tensors of a {architecture.kind} model: {', '.join(which[:3])}")
    model.load_state_dict(weights, strict=False)
    settings = {f"{name}_token_id": getattr(config, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    model.generation_config = GenerationConfig(**settings)
    return model


def _values(tensor: Any) -> Tensor:
    """The values of a tensor in float32, in transformers' shape."""
    from gguf import dequantize

    try:
        values = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise Unsupported(
            f"the tensor {tensor.name} has the type {tensor.tensor_type.name}, which gguf can't read"
        ) from error
    return torch.from_numpy(values.astype("float32", copy=True))


def _halves(weight: Tensor, head: int) -> Tensor:
    """Rows of each head from rotary pairs (0, 1), (2, 3), ... to halves: all first members, then all second ones."""
    return weight.view(-1, head // 2, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _tokenizer(fields: Mapping[str, Any]) -> Any:
    """The byte-level tokenizer of the file, which cuts texts by the rule that the file names."""
    kind, rule = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "none")
    if kind != "gpt2":
        raise Unsupported(f"the tokenizer of the file is of the kind {kind!r}, and only 'gpt2' can be read")
    split: Splitting = _chosen(SPLITTINGS, rule, "the splitting rule of the tokenizer")
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=split.whole))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts(split))
    tokenizer.decoder = decoders.ByteLevel()
    for special, number in ((True, 3), (False, 4)):  # control and user-defined tokens
        tokenizer.add_tokens(
            [
                AddedToken(x, normalized=False, special=special)
                for x, t in zip(tokens, types, strict=True)
                if t == number
            ]
        )
    named = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in _IDS.items()}
    around = ["$A"]
    if fields.get("tokenizer.ggml.add_bos_token", split.bos):
        around.insert(0, tokens[named["bos"]])
    if fields.get("tokenizer.ggml.add_eos_token", False):
        around.append(tokens[named["eos"]])
    if len(around) > 1:
        tokenizer.post_processor = processors.Sequence(
            [
                processors.TemplateProcessing(
                    single=" ".join(around), special_tokens=[(x, vocabulary[x]) for x in around if x != "$A"]
                )
            ]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=fields.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **{f"{name}_token": tokens[i] for name, i in named.items() if i is not None},
    )


def cuts(split: Splitting) -> list[Any]:
    """The steps of `tokenizers` that cut a text by a rule."""
    cuts: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if split.digits else []
    if split.pattern is not None:
        cuts.append(pre_tokenizers.Split(Regex(split.pattern), behavior="isolated"))
    return [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.pattern is None)]


def _about(file: Path, fields: Mapping[str, Any], tensors: Mapping[str, Any], model: Any) -> dict[str, str]:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return {
        "name": str(fields.get("general.name", file.stem)),
        "architecture": fields["general.architecture"],
        "quantisation": ", ".join(sorted({tensor.tensor_type.name for tensor in tensors.values()})),
        "parameters": f"{model.num_parameters():,}",
        "licence": str(fields.get("general.license", "not named in the file")),
        "file": file.name,
        "sha256": digest,
    }


def _card(about: Mapping[str, str], dtype: str) -> str:
    """The model card, with the licence where hubs read it."""
    rows = "\n".join(f"- {key}: {value}" for key, value in about.items())
    return (
        f"---\nlicense: {about['licence']}\nlibrary_name: transformers\n---\n\n# {about['name']}\n\n"
        f"Imported from a GGUF file by tokenpo. The weights are the file's, dequantised, in {dtype}.\n\n{rows}\n"
    )

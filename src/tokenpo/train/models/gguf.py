"""GGUF files, which llama.cpp reads: made into a model directory, and written from one.

A directory gets weights, config, tokenizer, chat template, generation settings and a model card. The weights are those
of the file, dequantised; nothing is downloaded and no code of the file is run.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from ...base.errors import TokenPOError, Unsupported, choose, require_package
from ...base.files import whole, whole_directory
from .directory import LICENCES, card_data
from .model import PROBE, LanguageModel, load

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


# The architectures, by one name in GGUF and in transformers. True: rows of queries and keys are in the order of rotary
# pairs, which transformers splits in halves.
ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}
# How a matrix is stored, by llama.cpp's names in small letters; vectors stay in float32.
STORED = ("f32", "f16", "bf16", "q8_0")
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

    A licence file next to the GGUF is copied.

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
    stored = choose("dtype", dtype, DTYPES)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise TokenPOError(f"{directory} exists and is not empty: choose another place")
    fields, tensors = _read(file)
    paired = _chosen(ARCHITECTURES, fields.get("general.architecture"), f"the architecture of {file}")
    model = _model(fields, tensors, paired)
    tokenizer = _tokenizer(fields)
    about = _about(file, fields, tensors, model)
    with whole_directory(directory.absolute()) as fresh:
        model.to(stored).save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        (fresh / "README.md").write_text(_card(about, dtype), encoding="utf-8")
        for licence in (file.parent / name for name in LICENCES):
            if licence.is_file():
                shutil.copyfile(licence, fresh / licence.name)
    return about


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a GGUF by name, and its tensors as the package `gguf` reads them."""
    require_package("reading GGUF", "gguf", "gguf")
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise TokenPOError(f"{file} cannot be read as GGUF: {error}; is it whole?") from error
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def _chosen(known: Mapping[str, Any], name: str | None, of: str) -> Any:
    if name is None or name not in known:
        raise Unsupported(f"{of} is {name!r}; supported are {', '.join(known)}: take the model's own directory")
    return known[name]


def _config(fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    """The config of transformers that the fields describe."""
    prefix = fields["general.architecture"]

    def get(name: str, default: Any = None) -> Any:
        value = fields.get(f"{prefix}.{name}", default)
        if value is None:
            raise Unsupported(f"the file has no field {prefix}.{name}: take the model's own directory")
        return value

    scaling = fields.get(f"{prefix}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in tensors or get("expert_count", 0):
        raise Unsupported(f"{prefix} with scaled rotary frequencies or experts: take the model's own directory")
    width, heads = get("embedding_length"), get("attention.head_count")
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in _IDS.items()}
    return AutoConfig.for_model(
        prefix,
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


def _model(fields: Mapping[str, Any], tensors: Mapping[str, Any], paired: bool) -> Any:
    """The model of transformers in float32, every weight of which is in the file, and every tensor of it used."""
    config, kind = _config(fields, tensors), fields["general.architecture"]
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    weights, left, missing = {}, set(tensors), []
    for name, now, known in _places(model, kind):
        source = known or name
        if source not in tensors:
            missing.append(source)
            continue
        left.discard(source)
        weight = _values(tensors[source])
        if weight.shape != now.shape:
            raise Unsupported(f"the tensor {source} has the shape {tuple(weight.shape)}, expected {tuple(now.shape)}")
        weights[name] = _halves(weight, config.head_dim) if paired and _is_rotated(name) else weight
    for problem, which in (("lacks", missing), ("has unknown", sorted(left))):
        if which:
            raise Unsupported(f"the file {problem} tensors of a {kind} model: {', '.join(which[:3])}")
    model.load_state_dict(weights, strict=False)
    settings = {f"{name}_token_id": getattr(config, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    model.generation_config = GenerationConfig(**settings)
    return model


def _places(model: Any, kind: str) -> Iterator[tuple[str, Tensor, str | None]]:
    """The name of each weight of a model, the weight, and its name in llama.cpp, if it has one."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == kind)
    names = get_tensor_name_map(arch, model.config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name != "lm_head.weight" or not model.config.tie_word_embeddings:
            yield name, weight, names.get_name(name, try_suffixes=(".weight", ".bias"))


def _values(tensor: Any) -> Tensor:
    """The values of a tensor in float32, in transformers' shape."""
    from gguf import dequantize

    return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).astype("float32", copy=True))


def _is_rotated(name: str) -> bool:
    return name.split(".")[-2] in ("q_proj", "k_proj")


def _halves(weight: Tensor, head: int) -> Tensor:
    """Rows of each head from rotary pairs (0, 1), (2, 3), ... to halves: all first members, then all second ones."""
    return weight.view(-1, head // 2, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _tokenizer(fields: Mapping[str, Any]) -> Any:
    """The byte-level tokenizer of the file, which cuts texts by the rule that the file names."""
    kind, rule = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "none")
    split: Splitting = _chosen(SPLITTINGS, rule if kind == "gpt2" else kind, "the splitting rule of the tokenizer")
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
    rows = "\n".join(f"- {key}: {value}" for key, value in about.items())
    return (
        f"---\nlicense: {about['licence']}\nlibrary_name: transformers\n---\n\n# {about['name']}\n\n"
        f"Imported from a GGUF file by tokenpo. The weights are the file's, dequantised, in {dtype}.\n\n{rows}\n"
    )


def export_gguf(directory: str | Path, file: Path, stored: str = "f16") -> dict[str, str]:
    """Writes the model in a directory as GGUF, whole or not at all.

    Args:
        directory: a model directory or a hub id, as `load` reads it; of an architecture of `ARCHITECTURES`.
        file: the .gguf file to write; it may not exist.
        stored: "f32", "f16", "bf16" or "q8_0" (8 bits, rows of a multiple of 32 weights).

    Returns:
        Name, architecture, storage, licence (as the model card has it), number of parameters and size of the file.

    Raises:
        TokenPOError: the file exists, or the model cannot be loaded. UnknownName: `stored`. Unsupported: llama.cpp's
            form of the architecture, of its rotary frequencies, of its tokenizer or of a weight is not known here.
    """
    choose("storage", stored, dict.fromkeys(STORED))
    if file.exists():
        raise TokenPOError(f"{file} exists: choose another name")
    require_package("writing GGUF", "gguf", "gguf")
    from gguf import GGUFWriter, LlamaFileType

    place, lm = Path(directory), load(directory)
    kind = lm.model.config.model_type
    paired = _chosen(ARCHITECTURES, kind, f"the architecture of {directory}")
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
        for name, weight, target in _places(lm.model, kind):
            if target is None:
                raise Unsupported(f"the weight {name} has no place in a GGUF of the architecture {kind!r}")
            rotated = paired and _is_rotated(name)
            _put_tensor(writer, target, _pairs(weight, _head_size(lm.model.config)) if rotated else weight, stored)
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


def _pairs(weight: Tensor, head: int) -> Tensor:
    """Rows of each head from halves to rotary pairs: the first of each half, the second of each half, ..."""
    return weight.view(-1, 2, head // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _put_tensor(writer: Any, name: str, weight: Tensor, stored: str) -> None:
    from gguf import GGMLQuantizationType, quantize

    values = weight.detach().to("cpu", torch.float32).contiguous().numpy()
    if values.ndim == 1 or stored == "f32":
        writer.add_tensor(name, values)
        return
    how = GGMLQuantizationType[stored.upper()]
    writer.add_tensor(name, quantize(values, how), raw_dtype=how)

"""A causal language model with its tokenizer: loaded from a Hugging Face directory or hub id, saved to a directory.

Weights are read from safetensors only, and code from a model directory is never run.
"""

from __future__ import annotations

import contextlib
import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast
from transformers.utils import logging as hf_logging

from ...base.errors import TokenPOError, choose, require_package
from ...base.files import expanded, whole_directory
from ...base.text import first_line
from .directory import RECORD, check_directory, is_local, similar
from .vocabulary import Vocabulary

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
Prompts = Sequence[Sequence[int]]  # token ids of each


@dataclass
class LanguageModel(Vocabulary):
    """A Hugging Face causal LM, its tokenizer, and the token ids that end or pad a sequence.

    Args:
        model: PreTrainedModel, in eval mode (LoRA layers, if any, are inside it).
        tokenizer: PreTrainedTokenizerBase.
        eos_ids: every id that ends a response.
        pad_id: fills padding; may be an EOS id, as masks are never inferred from it.
        adapter: the PeftModel that wraps `model` when LoRA is used.
        master: the float32 model of which this is the bf16 copy (`half`).
        abilities: cached results of probes ("packed", "graphed", "plain_head", "tokens_ending").
    """

    model: Any
    tokenizer: Any
    eos_ids: tuple[int, ...]
    pad_id: int
    adapter: Any = None
    master: LanguageModel | None = None
    abilities: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def device(self) -> torch.device:
        """The device of the model's input embeddings."""
        return self.model.get_input_embeddings().weight.device

    @property
    def trained(self) -> LanguageModel:
        """The model that the optimiser moves and that is saved: `master` if there is one, else this one."""
        return self.master or self

    @property
    def rows(self) -> int:
        """The number of tokens that the model embeds."""
        return self.model.get_input_embeddings().weight.shape[0]

    def ends(self, vocabulary: int) -> torch.Tensor:
        ids = torch.arange(vocabulary, device=self.device)
        return torch.isin(ids, torch.tensor(self.eos_ids, device=self.device))

    def encode(self, prompt: str | list[dict]) -> list[int]:
        """As `Vocabulary.encode`; also raises TokenPOError for a token that the model does not embed."""
        return self._embedded(super().encode(prompt))

    def inserted(self, text: str) -> list[int]:
        """Token ids of a text inside a response, without the special tokens that tokenizers put around a text."""
        return self._embedded(list(self.tokenizer(text, add_special_tokens=False)["input_ids"]))

    def _embedded(self, ids: list[int]) -> list[int]:
        """The ids; raises TokenPOError for one that is not below `rows`, as it would end the process on a GPU."""
        if (number := max(ids)) >= self.rows:
            token = self.tokenizer.convert_ids_to_tokens(number)
            where = f"the prompt has the token {token!r:.40} with the number {number}, but the model embeds {self.rows}"
            raise TokenPOError(f"{where}: use the tokenizer that belongs to the weights")
        return ids

    def tokens_ending(self, text: str) -> frozenset[int]:
        """The tokens whose own text ends with `text`."""
        known = self.abilities.setdefault("tokens_ending", {})
        if text not in known:
            texts = self.tokenizer.batch_decode([[i] for i in range(self.rows)], skip_special_tokens=True)
            known[text] = frozenset(i for i, x in enumerate(texts) if x.endswith(text))
        return known[text]


def resolve_device(name: str) -> str:
    """The device that a setting names; "auto" is cuda if there is one, else cpu. TokenPOError if it can't be used."""
    device = name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise TokenPOError(f"device {device!r} cannot be used here: {first_line(error)}") from error
    return device


def positions(model: Any) -> int | None:
    """The longest text that the model runs as it should; None if nothing limits it."""
    return getattr(model.config, "max_position_embeddings", None)


def load(
    path_or_hub_id: str | Path, *, dtype: str = "float32", device: str = "cpu", lora: LoraOptions | None = None
) -> LanguageModel:
    """Loads a causal LM and its tokenizer from a local directory or the Hugging Face hub.

    Args:
        path_or_hub_id: a directory with config.json, safetensors weights and tokenizer files, or "owner/name".
        dtype: "float32", "bfloat16", "float16" or "float64".
        device: a torch device, such as "cpu" or "cuda"; "auto" is cuda if there is one.
        lora: adapters to train instead of the weights.

    Raises:
        TokenPOError: something is missing or wrong in the directory or on the hub; the message has the remedy.
        UnknownName: an unknown dtype.
    """
    kind = choose("dtype", dtype, _DTYPES)
    where = str(expanded(path_or_hub_id)) if (local := is_local(path_or_hub_id)) else str(path_or_hub_id)
    if local:
        check_directory(Path(where))
    model = _load_weights(where, kind).to(resolve_device(device))
    tokenizer = _load_tokenizer(where)
    eos_ids = _eos_ids(model, tokenizer, where)
    pad_id = _pad_id(model, tokenizer, eos_ids)
    adapter = None if lora is None else adapted(model, lora, where).eval()
    return LanguageModel(model.eval(), tokenizer, eos_ids, pad_id, adapter=adapter)


def save(
    lm: LanguageModel,
    directory: str | Path,
    record: Mapping[str, object] | None = None,
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a Hugging Face directory that `load` and AutoModelForCausalLM can read, completely or not at all.

    LoRA adapters are merged into the weights. After an error, an older model in the directory is unchanged.

    Args:
        record: data to store with the model; `directory.trained` reads it.
        more: contents of further files by name.

    Raises:
        TokenPOError: the destination exists and is not a model directory.
        OSError, SafetensorError: writing failed, for instance on a full disk.
    """
    target = Path(directory).expanduser().absolute()
    if target.exists() and not (target.is_dir() and ((target / "config.json").exists() or not any(target.iterdir()))):
        raise TokenPOError(f"{target} exists and is not a model directory: choose another place to save to")
    lm = lm.trained
    model = lm.model if lm.adapter is None else copy.deepcopy(lm.adapter).merge_and_unload()
    with whole_directory(target) as fresh:
        with _quiet():
            _save_weights(model, fresh)
            lm.tokenizer.save_pretrained(fresh)
        for name, content in (more or {}).items():
            (fresh / name).write_bytes(content)
        if record is not None:
            (fresh / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")


def save_adapter(lm: LanguageModel, directory: str | Path) -> bool:
    """Writes only the LoRA adapters, in peft's format; returns False if there are none. Raises as `save`."""
    if lm.adapter is None:
        return False
    lm = lm.trained
    with whole_directory(Path(directory).expanduser().absolute()) as fresh, _quiet():
        lm.adapter.save_pretrained(fresh)
    return True


def _save_weights(model: Any, directory: Path) -> None:
    """Saves the weights, and the generation settings unchanged, as transformers does not save all that it loads."""
    settings = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        model.save_pretrained(directory)
    finally:
        model.generation_config = settings
    settings.to_json_file(directory / "generation_config.json", keys_to_pop=["compile_config"])


def _load_weights(where: str, dtype: torch.dtype) -> Any:
    try:
        with _quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                where,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                # Mismatches are reported below, as the loader's own error names no weight.
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
            model, info = loaded
    except Exception as error:
        here = "" if is_local(where) else f"there is no directory {where} here{similar(Path(where))}, and "
        raise TokenPOError(f"{here}cannot load a causal language model from {where}: {first_line(error)}") from error
    if faults := [*(key[0] for key in info["mismatched_keys"]), *info["missing_keys"]]:
        fault = f"do not fit its config.json (of another shape, or missing: {', '.join(sorted(faults)[:3])})"
        raise TokenPOError(f"the weights in {where} {fault}: use their own config.json")
    return model


# Tokenizers with other rules give this text other ids.
PROBE = "It's 12345 of  them,\n\n they'Ll've\t x=7"


def _load_tokenizer(where: str) -> Any:
    """The tokenizer that tokenizer.json describes: transformers 5.10 gives a qwen2 model Qwen2's rules in any case."""
    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
            file = Path(where) / "tokenizer.json"
            if file.is_file():
                written = Tokenizer.from_file(str(file)).encode(PROBE, add_special_tokens=False).ids
                if tokenizer(PROBE, add_special_tokens=False)["input_ids"] != written:
                    warnings.warn(
                        f"transformers' {type(tokenizer).__name__} gives other token ids than {file}: the file is "
                        "used; use it wherever the model goes, by PreTrainedTokenizerFast.from_pretrained",
                        stacklevel=3,
                    )
                    tokenizer = PreTrainedTokenizerFast.from_pretrained(where)
            return tokenizer
    except Exception as error:
        remedy = "tokenizer.save_pretrained writes what the directory needs"
        raise TokenPOError(f"cannot load a tokenizer from {where}: {first_line(error)}; {remedy}") from error


def _eos_ids(model: Any, tokenizer: Any, where: str) -> tuple[int, ...]:
    """Every id that the generation config, the config or the tokenizer names as end of sequence."""
    ids: dict[int, None] = {}
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        ids |= dict.fromkeys(value if isinstance(value, list | tuple) else [] if value is None else [value])
    if not ids:
        raise TokenPOError(f"the model in {where} names no end-of-sequence token: set eos_token_id in its config.json")
    return tuple(ids)


def _pad_id(model: Any, tokenizer: Any, eos_ids: Sequence[int]) -> int:
    """The tokenizer's padding id if the model embeds it, as padding passes through the model; else an EOS id or 0."""
    embedded = range(model.get_input_embeddings().weight.shape[0])
    return next(i for i in (tokenizer.pad_token_id, *eos_ids, 0) if i in embedded)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences transformers' progress bars and load reports."""
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()


@dataclass(frozen=True)
class LoraOptions:
    """Low-rank adapters that are trained in place of the weights (needs peft).

    Args:
        rank: inner dimension.
        alpha: the update is scaled by alpha / rank.
        targets: names of the adapted linear layers, or "all-linear".
    """

    rank: int = 16
    alpha: float = 32.0
    targets: str | Sequence[str] = "all-linear"


def adapted(model: Any, options: LoraOptions, where: str) -> Any:
    """The PeftModel around a model; changes the model's layers in place.

    Args:
        where: the model's path, for messages.

    Raises:
        TokenPOError: peft is not installed, or targets do not exist or cannot be merged.
    """
    require_package("LoRA", "peft", "lora")
    from peft import LoraConfig, get_peft_model

    targets = options.targets if isinstance(options.targets, str) else list(options.targets)
    alpha: Any = options.alpha
    config = LoraConfig(r=options.rank, lora_alpha=alpha, target_modules=targets, task_type="CAUSAL_LM")
    tied = _tied(model)
    try:
        adapter = get_peft_model(model, config)
    except ValueError as error:
        raise TokenPOError(f"LoRA targets {options.targets!r}: {first_line(error)}") from error
    if names := sorted(tied.intersection(adapter.targeted_module_names)):
        tie = f"in the model in {where} the weights of {names[0]} are tied to another layer's"
        raise TokenPOError(f"LoRA targets {options.targets!r}: {tie}: leave it out of model.lora.targets")
    return adapter


def _tied(model: torch.nn.Module) -> set[str]:
    """Names of the layers that share a weight with another layer, as a head may share the embedding's."""
    owners: dict[torch.nn.Parameter, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        owners.setdefault(weight, []).append(name.rpartition(".")[0])
    return {name for names in owners.values() if len(names) > 1 for name in names}

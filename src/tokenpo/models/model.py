"""A causal language model with its tokenizer: from a Hugging Face directory or hub id, back to a directory.

Weights are read from safetensors only and no code from a model directory is ever run.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as hf_logging

from ..base.errors import TokenPOError, UnknownName, nearest
from ..base.files import whole_directory
from ..base.silence import muted
from ..base.text import first_line
from .device import resolve_device
from .directory import (
    CHECKED,
    RECORD,
    ask_hub,
    check_directory,
    check_names,
    check_tokens,
    index_of,
    is_local,
    path_of,
    weights_file,
)
from .lora import LoraOptions, adapted
from .vocabulary import Tokenized

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@dataclass
class LanguageModel(Tokenized):
    """A Hugging Face causal LM, its tokenizer, and the token ids that end or pad a sequence.

    Args:
        model: PreTrainedModel, in eval mode (LoRA layers, if any, are inside it).
        tokenizer: PreTrainedTokenizerBase.
        eos_ids: every id that ends a response.
        pad_id: fills padding; may be an EOS id, as masks are never inferred from it.
        adapter: the PeftModel that wraps `model` when LoRA is used.
        abilities: what has been tried on model and tokenizer, each once ("packed", "plain_head", "tokens_ending").
    """

    model: Any
    tokenizer: Any
    eos_ids: tuple[int, ...]
    pad_id: int
    adapter: Any = None
    abilities: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def device(self) -> torch.device:
        """Where the model's input embeddings are."""
        return self.model.get_input_embeddings().weight.device

    def encode(self, prompt: str | list[dict]) -> list[int]:
        """Token ids of a prompt, each of which the model embeds.

        Raises:
            TokenPOError: chat messages for a tokenizer without chat template or with one that fails, a prompt of no
                tokens, or a token that the model does not know.
        """
        ids = super().encode(prompt)
        self._require_embedded(max(ids))
        return ids

    def _require_embedded(self, number: int) -> None:
        """A tokenizer may have tokens that the model does not embed: on a GPU one of those would end the process."""
        rows = self.model.get_input_embeddings().weight.shape[0]
        if number >= rows:
            token = self.tokenizer.convert_ids_to_tokens(number)
            raise TokenPOError(
                f"the prompt has the token {token!r:.40} with the number {number}, but the model embeds {rows} tokens: "
                "use the tokenizer that belongs to the weights"
            )

    def inserted(self, text: str) -> list[int]:
        """Token ids of a text inside a response, without any that a tokenizer puts around a text."""
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        self._require_embedded(max(ids))
        return ids

    def tokens_ending(self, text: str) -> frozenset[int]:
        """The tokens whose own text ends with this one."""
        found = self.abilities.setdefault("tokens_ending", {})
        if text not in found:
            every = range(self.model.get_input_embeddings().weight.shape[0])
            texts = self.tokenizer.batch_decode([[i] for i in every], skip_special_tokens=True)
            found[text] = frozenset(i for i, x in zip(every, texts, strict=True) if x.endswith(text))
        return found[text]


def load(
    path_or_hub_id: str | Path, *, dtype: str = "float32", device: str = "cpu", lora: LoraOptions | None = None
) -> LanguageModel:
    """Loads a causal LM and its tokenizer from a local directory or the Hugging Face hub.

    Args:
        path_or_hub_id: a directory with config.json, safetensors weights and tokenizer files, or "owner/name".
        dtype: "float32", "bfloat16", "float16" or "float64".
        device: a torch device, such as "cpu" or "cuda"; "auto" is cuda where there is one.
        lora: adapters to train instead of the weights.

    Raises:
        TokenPOError: what is missing or wrong in the directory (or on the hub), with the remedy.
        UnknownName: an unknown dtype.
    """
    if dtype not in _DTYPES:
        raise UnknownName(f"unknown dtype {dtype!r}: {nearest(dtype, _DTYPES)}")
    where = str(path_or_hub_id)
    if is_local(path_or_hub_id):
        where = str(path_of(path_or_hub_id))
        check_directory(Path(where))
        files = Path(where)
    else:
        ask_hub(where)
        files = _from_hub(where)
    device = resolve_device(device)
    _check_device(device)
    model = _load_weights(where, _DTYPES[dtype]).to(device)
    if files is not None:
        check_tokens(files, model.get_input_embeddings().weight.shape[0])
    tokenizer = _load_tokenizer(where)
    eos_ids = _eos_ids(model, tokenizer, where)
    pad_id = _pad_id(model, tokenizer, eos_ids)
    adapter = None if lora is None else adapted(model, lora, where).eval()
    return LanguageModel(model.eval(), tokenizer, eos_ids, pad_id, adapter=adapter)


def save(lm: LanguageModel, directory: str | Path, record: Mapping[str, object] | None = None) -> None:
    """Writes a Hugging Face directory that `load` and AutoModelForCausalLM read; LoRA adapters are merged in.

    The directory appears whole or not at all: it is written beside its destination and renamed. A model that was there
    stays until then, and after an error.

    Args:
        record: what `directory.trained` returns for the directory.

    Raises:
        TokenPOError: the destination exists and is not a model directory.
        OSError, SafetensorError: the disk is full, or worse.
    """
    target = Path(directory).expanduser().absolute()
    if target.exists() and not (target.is_dir() and ((target / "config.json").exists() or not any(target.iterdir()))):
        raise TokenPOError(f"{target} exists and is not a model directory: choose another place to save to")
    model = lm.model if lm.adapter is None else copy.deepcopy(lm.adapter).merge_and_unload()
    with whole_directory(target) as fresh:
        with _quiet():
            _save_weights(model, fresh)
            _save_tokenizer(lm.tokenizer, fresh)
        if record is not None:
            (fresh / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")


def save_adapter(lm: LanguageModel, directory: str | Path) -> bool:
    """Writes the LoRA adapters alone, as peft reads them (adapter_config.json, safetensors); False without any.

    Raises:
        OSError, SafetensorError: the disk is full, or worse; what was there before stays.
    """
    if lm.adapter is None:
        return False
    with whole_directory(Path(directory).expanduser().absolute()) as fresh, _quiet():
        lm.adapter.save_pretrained(fresh)
    return True


def _save_tokenizer(tokenizer: Any, directory: Path) -> None:
    try:
        tokenizer.save_pretrained(directory)
    except OSError:
        raise
    except Exception as error:  # what the tokenizers' library raises where the disk is full
        raise OSError(f"the tokenizer cannot be saved: {error}") from error


def _save_weights(model: Any, directory: Path) -> None:
    """Saves the generation settings as they were loaded: transformers refuses to save some that it loads."""
    settings = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        model.save_pretrained(directory)
    finally:
        model.generation_config = settings
    settings.to_json_file(directory / "generation_config.json", keys_to_pop=["compile_config"])


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside; the mode it had afterwards."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def _from_hub(name: str) -> Path | None:
    """Where the small files of a model of the hub lie, checked as those of a directory; None where it has none."""
    from transformers.utils.hub import cached_file

    def fetched(file: str) -> Path | None:
        found = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
        return None if found is None else Path(found)

    try:
        files = [fetched(file) for file in CHECKED]
        if files[0] is None:
            return None
        fetched(index_of(Path(weights_file(files[0].parent))).name)
    except OSError:  # not there, or not to be had: the loader says which
        return None
    check_names(files[0].parent)
    return files[0].parent


def _load_weights(where: str, dtype: torch.dtype) -> Any:
    try:
        with _quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                where,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                # Reported below by name; the loader's own error names nothing.
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
            model, info = loaded
    except Exception as error:
        here = "" if is_local(where) else f"there is no directory {where} here, and "
        raise TokenPOError(f"{here}cannot load a causal language model from {where}: {first_line(error)}") from error
    if getattr(model, "_hf_peft_config_loaded", False):  # of the hub; `check_directory` finds a local one
        raise TokenPOError(
            f"{where} holds a LoRA adapter, which is never applied here: merge it into its base model first"
        )
    for kind, meaning in (("mismatched_keys", "have another shape than"), ("missing_keys", "are missing for")):
        names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in info.get(kind) or ())
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise TokenPOError(
                f"the weights in {where} do not fit config.json: {', '.join(names[:3])}{more} {meaning} a "
                f"{type(model).__name__} of that configuration; use the config.json that belongs to the weights"
            )
    return model


def _load_tokenizer(where: str) -> Any:
    try:
        with _quiet(), muted():
            return AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    except Exception as error:
        raise TokenPOError(
            f"cannot load a tokenizer from {where}: {first_line(error)}; "
            "the directory needs tokenizer.json (tokenizer.save_pretrained writes it)"
        ) from error


def _eos_ids(model: Any, tokenizer: Any, where: str) -> tuple[int, ...]:
    """Every id that the generation config, the config or the tokenizer calls end of sequence."""
    generation = getattr(model, "generation_config", None)
    rows = model.get_input_embeddings().weight.shape[0]
    ids: list[int] = []
    for value in (
        getattr(generation, "eos_token_id", None),
        getattr(model.config, "eos_token_id", None),
        tokenizer.eos_token_id,
    ):
        found = value if isinstance(value, list | tuple) else [value]
        if not all(i is None or (isinstance(i, int) and not isinstance(i, bool) and 0 <= i < rows) for i in found):
            raise TokenPOError(
                f"the model in {where} names the end-of-sequence token {value!r:.40}: give its number, one of the "
                f"{rows} that the model embeds"
            )
        ids += [i for i in dict.fromkeys(found) if i is not None and i not in ids]
    if not ids:
        raise TokenPOError(
            f"the model in {where} names no end-of-sequence token: set eos_token_id in generation_config.json"
        )
    return tuple(ids)


def _pad_id(model: Any, tokenizer: Any, eos_ids: Sequence[int]) -> int:
    """The tokenizer's, if the model embeds it: padding goes through the model, though its outputs are never read."""
    embedded = range(model.get_input_embeddings().weight.shape[0])
    return next(i for i in (tokenizer.pad_token_id, *eos_ids, 0) if i in embedded)


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise TokenPOError(f"device {device!r} cannot be used here: {first_line(error)}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and load reports: what matters is raised."""
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()

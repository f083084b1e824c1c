"""Where a model is, and what is wrong with its directory, said before a loader fails on it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from ..base.errors import TokenPOError
from ..base.files import expanded, fingerprint, json_object

# In a model directory that a run wrote: the step, and the checksum of the checkpoint's weights.
RECORD = "trained.json"
ASSETS = Path(__file__).parent / "assets" / "tiny"
_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")
# What transformers may read there: weights, configs, tokenizer, chat templates.
_READ = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "additional_chat_templates/*.jinja")
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


def is_local(path_or_hub_id: str | Path) -> bool:
    """Whether this names a local directory, not a model of the hub: so does a path whose parent directory exists.

    >>> is_local("Qwen/Qwen3-0.6B"), is_local("./model"), is_local("/nowhere/model"), is_local("runs/a/model")
    (False, True, True, True)
    """
    if isinstance(path_or_hub_id, Path) or not _HUB_ID.fullmatch(path_or_hub_id):
        return True
    path = path_of(path_or_hub_id)
    return path.exists() or ("/" in path_or_hub_id and path.parent.is_dir())


def path_of(name: str | Path) -> Path:
    """The user's name for a model as a path.

    Raises:
        TokenPOError: the path is too long, or a directory in it may not be entered.
    """
    path = expanded(name)
    try:
        (path / "config.json").exists()
    except OSError as error:
        raise TokenPOError(
            f"the model {name!s:.80} cannot be looked up: {error.strerror}; give a directory that can be read, or a "
            "hub id"
        ) from error
    return path


def locate(name: str | Path) -> str | Path:
    """Where the model is that a user names: "tiny" is the one that ships, a run directory stands for its `model/`.

    Raises:
        TokenPOError: there is nothing, or a run directory without a model or with one of fewer steps than its config
            asks for.
    """
    if name == "tiny":
        return ASSETS
    path = path_of(name)
    if is_local(name):
        _require_there(path)
    if not (path / "objective.txt").is_file():
        return name
    model, remedy = path / "model", f"let it finish with tokenpo train --resume {path}"
    if not model.is_dir():
        raise TokenPOError(f"the run in {path} has no model yet: {remedy}")
    made, planned = trained(model).get("step"), _planned(path)
    if isinstance(made, int) and made < planned:
        raise TokenPOError(
            f"the model in {path} is that of step {made}, and the run goes on to step {planned}: {remedy}, "
            f"or give {model}"
        )
    return model


def identity(path: Path) -> str:
    """Tells a model directory apart from others: a hash of every byte that a model is made of."""
    return fingerprint(sorted(file for pattern in _READ for file in path.glob(pattern)))


def trained(path: Path) -> Mapping[str, object]:
    """The record that a run wrote beside its model; empty where there is none that can be read."""
    return json_object(path / RECORD)


def _planned(run: Path) -> int:
    """The steps that a run is to make; 0 where its config does not say."""
    section = json_object(run / "config.json").get("train")
    steps = section.get("steps") if isinstance(section, dict) else None
    return steps if isinstance(steps, int) else 0


def check_directory(path: Path) -> None:
    """Refuses a directory from which no model can be loaded.

    Raises:
        TokenPOError: it does not exist, holds an adapter, has no config.json, only pickled weights, none, some shards
            missing, wants to run its own code, or has no tokenizer.
    """
    _require_there(path)
    if not path.is_dir():
        raise TokenPOError(f"{path} is a file: give the directory that holds config.json and the weights")
    if (path / "adapter_config.json").is_file():  # transformers would put it on top of whatever weights are there
        raise TokenPOError(
            f"{path} holds a LoRA adapter (adapter_config.json), which is never applied here: merge it into its base "
            "model first, or move it away from weights that are whole without it"
        )
    config = _config(path)
    if config.get("auto_map"):
        raise TokenPOError(
            f"the model in {path} brings its own Python code (auto_map in config.json), which is never run here: "
            "use a model of an architecture that transformers knows"
        )
    _check_weights(path)
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise TokenPOError(
            f"model directory {path} has no tokenizer (tokenizer.json): "
            "save the model's tokenizer there with tokenizer.save_pretrained"
        )


def _require_there(path: Path) -> None:
    if not path.exists():
        owner = path.parent
        hub = f" (the hub is asked only where {owner} is no directory)" if _HUB_ID.fullmatch(str(path)) else ""
        raise TokenPOError(f"there is no directory {path} here: give the directory of a run or of a model{hub}")


def _config(path: Path) -> dict:
    file = path / "config.json"
    if not file.is_file():
        raise TokenPOError(f"model directory {path} has no config.json: is it a Hugging Face model directory?")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenPOError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise TokenPOError(f"{file} must hold a JSON object")
    return config


def _check_weights(path: Path) -> None:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TokenPOError(f"{index} is not a valid index of weight files") from error
        missing = [name for name in shards if not (path / name).is_file()]
        if missing:
            raise TokenPOError(f"model directory {path} lacks the weight file {missing[0]} that its index names")
        return
    if (path / "model.safetensors").is_file():
        return
    pickled = sorted(file.name for pattern in _PICKLES for file in path.glob(pattern))
    if pickled:
        raise TokenPOError(
            f"the weights in {path} are pickled ({pickled[0]}), and unpickling can run code: convert them to "
            "safetensors first (model.save_pretrained in an environment where you trust them)"
        )
    raise TokenPOError(f"model directory {path} has no weights: expected model.safetensors")

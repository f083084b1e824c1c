"""Finds model directories, and names the usual mistakes in one before a loader fails on them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError, nearest
from ...base.files import expanded, fingerprint, json_object

# File that a run writes into its model directory: the step, and the checksum of the checkpoint's weights.
RECORD = "trained.json"
ASSETS = Path(__file__).parent / "assets" / "tiny"
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")
_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")
_READ = {".safetensors", ".json", ".jinja", ".model", ".txt", ".bpe", ".codes", ".spm"}  # what loaders read
_PICKLED = {".bin", ".pt", ".pth", ".ckpt"}
_TOKENIZERS = {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt"}


def is_local(path_or_hub_id: str | Path) -> bool:
    """Whether this names a local directory rather than a hub model; true also if only the parent directory exists.

    >>> is_local("Qwen/Qwen3-0.6B"), is_local("./model"), is_local("/nowhere/model"), is_local("runs/a/model")
    (False, True, True, True)
    >>> is_local("tinker://run/weights/final")  # on a server
    False
    """
    if "://" in str(path_or_hub_id):
        return False
    if isinstance(path_or_hub_id, Path) or not _HUB_ID.fullmatch(path_or_hub_id):
        return True
    path = Path(path_or_hub_id)
    return path.exists() or ("/" in path_or_hub_id and path.parent.is_dir())


def locate(name: str | Path) -> str | Path:
    """The directory or hub id that a user names: "tiny" is the shipped model, a run directory means its `model/`.

    Raises:
        TokenPOError: the directory does not exist, or the run has no model or one of fewer steps than its config plans.
    """
    if name == "tiny":
        return ASSETS
    path = expanded(name)
    if is_local(name):
        require_there(path)
    if not is_run(path):
        return name
    model, remedy = path / "model", f"let it finish with tokenpo train --resume {path}"
    if not model.is_dir():
        raise TokenPOError(f"the run in {path} has no model yet: {remedy}")
    section = json_object(path / "config.json").get("train")
    made, planned = trained(model).get("step"), section.get("steps") if isinstance(section, dict) else None
    if isinstance(made, int) and isinstance(planned, int) and made < planned:
        raise TokenPOError(f"the model in {path} is that of step {made} of {planned}: {remedy}, or give {model}")
    return model


def is_run(path: Path) -> bool:
    """Whether a run wrote this directory: it has objective.txt, or a recipe's sections in its config.json."""
    sections = json_object(path / "config.json").keys()
    return (path / "objective.txt").is_file() or {"task", "method", "rollout"} <= sections


def identity(path: Path) -> str:
    """A hash of every file of a model directory that a loader may read."""
    return fingerprint(sorted(file for file in path.iterdir() if file.suffix in _READ and file.is_file()))


def trained(path: Path) -> Mapping[str, object]:
    """Returns the record that a run wrote with its model; empty if there is none, or it cannot be read."""
    return json_object(path / RECORD)


def card_data(path: Path) -> Mapping[str, Any]:
    """What the model card in a directory says in its head; empty without a card."""
    from huggingface_hub import metadata_load

    return (metadata_load(path / "README.md") or {}) if (path / "README.md").is_file() else {}


def check_directory(path: Path) -> None:
    """Raises TokenPOError for the usual mistakes: no directory, a LoRA adapter, pickled weights, no tokenizer."""
    require_there(path)
    refuse_adapter(path)
    names = {file.name for file in path.iterdir()} if path.is_dir() else set()
    # transformers reads a weight file of another kind by torch's unpickler.
    index = json_object(path / "model.safetensors.index.json").get("weight_map")
    weights = {str(json_object(path / "config.json").get("transformers_weights") or "model.safetensors")}
    weights |= {str(file) for file in index.values()} if isinstance(index, Mapping) else set()
    pickled = {Path(name).suffix for name in names} & _PICKLED and not any(x.endswith(".safetensors") for x in names)
    if not names & _TOKENIZERS:  # transformers would make an empty one
        raise TokenPOError(f"the model directory {path} has no tokenizer: save it there with tokenizer.save_pretrained")
    if pickled or not all(name.endswith((".safetensors", ".safetensors.index.json")) for name in weights):
        remedy = "convert them to safetensors with model.save_pretrained, where you trust them"
        raise TokenPOError(f"the model directory {path} has pickled weights: {remedy}")


def refuse_adapter(path: Path) -> None:
    """Raises TokenPOError for the directory of a LoRA adapter; transformers would apply it to any weights in there."""
    if (path / "adapter_config.json").is_file():
        merge = "peft's AutoPeftModelForCausalLM.from_pretrained(DIR).merge_and_unload().save_pretrained(NEW)"
        raise TokenPOError(f"{path} holds a LoRA adapter: merge it with {merge}, add the tokenizer, and give NEW")


def require_there(path: Path) -> None:
    """Raises TokenPOError if nothing exists at this path of a run or a model."""
    if not path.exists():
        raise TokenPOError(f"there is no directory {path} here{similar(path)}: give that of a run or of a model")


def similar(path: Path) -> str:
    """Hints at the directory that was probably meant, next to the first missing directory of the path; "" if none."""
    missing = next(x for x in (path, *path.parents) if x.parent.is_dir())
    hint = nearest(missing.name, [x.name for x in missing.parent.iterdir() if x.is_dir()])
    return f" ({hint})" if hint.startswith("did you mean") else ""

"""Where a model is, and what is wrong with its directory, said before a loader fails on it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..base.errors import TokenPOError, nearest
from ..base.files import expanded, fingerprint, json_object
from ..base.text import first_line

# In a model directory that a run wrote: the step, and the checksum of the checkpoint's weights.
RECORD = "trained.json"
ASSETS = Path(__file__).parent / "assets" / "tiny"
_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")
# What transformers may read there, as `check_names` holds it to: weights, configs, tokenizer, chat templates.
_TEMPLATES = "additional_chat_templates/*.jinja"
_READ = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.bpe", "*.codes", "*.spm", _TEMPLATES)
_INDEX = ".safetensors.index.json"
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
_SETTINGS = "tokenizer_config.json"
# What `check_names` and `check_tokens` look at, beside the index.
CHECKED = ("config.json", _SETTINGS, "tokenizer.json", "vocab.json", "added_tokens.json")
# Written by earlier versions of transformers, and never read.
_UNREAD = ("special_tokens_map_file",)


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
    if not is_run(path):
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


def ask_hub(name: str) -> None:
    """Asks the hub once whether it has a model, and says so: a mistyped path would otherwise be asked for, file after
    file and each of them six times, before the loader gives up.

    Raises:
        TokenPOError: it has none of this name, or cannot be reached.
    """
    from huggingface_hub import hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    print(f"there is no directory {name} here{_like(Path(name))}: asking the hub for it", file=sys.stderr)
    try:
        url, headers = hf_hub_url(name, "config.json"), build_hf_headers()
        hf_raise_for_status(get_session().head(url, headers=headers, follow_redirects=True, timeout=10))
    except RepositoryNotFoundError as error:
        raise TokenPOError(
            f"the hub has no model {name} that you may read: give a directory or a hub id, or log in with hf auth login"
        ) from error
    except HfHubHTTPError:
        return  # it has answered: the loader finds out what is missing
    except Exception as error:  # whatever its client raises without a connection
        raise TokenPOError(
            f"the hub cannot be asked for {name} ({first_line(error)}): give the directory of a run or of a model"
        ) from error


def _like(path: Path) -> str:
    """The directory that was probably meant: beside the first that is missing on the way."""
    missing = next(x for x in (path, *path.parents) if x.parent.is_dir())
    there = [x.name for x in missing.parent.iterdir() if x.is_dir()]
    hint = nearest(missing.name, there)
    return f" ({hint})" if hint.startswith("did you mean") else ""


def is_run(path: Path) -> bool:
    """Whether a run wrote this directory: it has an objective, or the sections of a recipe in its config."""
    return (path / "objective.txt").is_file() or {"task", "method", "rollout"} <= json_object(
        path / "config.json"
    ).keys()


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
            missing, wants to run its own code, or has no tokenizer; or as `check_names`.
    """
    _require_there(path)
    if not path.is_dir():
        raise TokenPOError(f"{path} is a file: give the directory that holds config.json and the weights")
    if (path / "adapter_config.json").is_file():  # transformers would put it on top of whatever weights are there
        raise TokenPOError(
            f"{path} holds a LoRA adapter (adapter_config.json), which is never applied here: merge it into its base "
            "model first, or move it away from weights that are whole without it"
        )
    if not (path / "config.json").is_file():
        raise TokenPOError(f"model directory {path} has no config.json: is it a Hugging Face model directory?")
    if _object(path / "config.json").get("auto_map"):
        raise TokenPOError(
            f"the model in {path} brings its own Python code (auto_map in config.json), which is never run here: "
            "use a model of an architecture that transformers knows"
        )
    check_names(path)
    _check_weights(path)
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise TokenPOError(
            f"model directory {path} has no tokenizer (tokenizer.json): "
            "save the model's tokenizer there with tokenizer.save_pretrained"
        )


def check_names(path: Path) -> None:
    """Refuses files that send the loaders elsewhere: whatever they read is safetensors or text of this directory.

    A weight file is named plainly and ends in .safetensors, since anything else would be unpickled; a tokenizer's files
    go by their own names; attention and experts are computed by transformers, not by code of the hub.

    Raises:
        TokenPOError: naming the file and what it names.
    """
    config = path / "config.json"
    for key, value in _settings(_object(config)):
        if "_implementation" in key and isinstance(value, str) and not value.isidentifier():
            raise TokenPOError(
                f"{config} asks for {key} = {value!r:.80}, code from the hub, which is never run here: take the key out"
            )
    weights = weights_file(path)
    told = [(config, weights.replace(_INDEX, ".safetensors"))]
    told += [(index_of(path / weights), name) for name in _shards(path / weights) or ()]
    for file, name in told:
        if not _is_plain(name, ".safetensors"):
            raise TokenPOError(
                f"{file} names the weight file {name!r:.80}: only files of the model directory itself whose names end "
                "in .safetensors are read; convert it, and put it there"
            )
    _check_tokenizer_files(path)


class _TokenizerSettings(BaseModel):
    """Those that are read when a text is taken apart, so that a wrong one would be noticed only there."""

    model_config = ConfigDict(strict=True, protected_namespaces=())

    model_max_length: Annotated[float, Field(ge=1)] | None = None
    padding_side: Literal["left", "right"] | None = None
    truncation_side: Literal["left", "right"] | None = None
    model_input_names: list[str] | None = None


def _check_tokenizer_files(path: Path) -> None:
    tokenizer = _object(path / _SETTINGS)
    try:
        _TokenizerSettings.model_validate(tokenizer)
    except ValidationError as error:
        (key, *_), said = error.errors()[0]["loc"], error.errors()[0]["msg"]
        raise TokenPOError(
            f"{path / _SETTINGS}: {key} is {tokenizer[str(key)]!r:.40}: {said}; correct it, or take it out"
        ) from error
    told = [(key, value) for key, value in tokenizer.items() if key.endswith("_file") and key not in _UNREAD]
    versions = tokenizer.get("fast_tokenizer_files")
    told += [("fast_tokenizer_files", name) for name in versions or () if not _is_plain(name, ".json")]
    for key, name in told:
        if name is not None:
            raise TokenPOError(
                f"{path / _SETTINGS} names the file {name!r:.80} in {key}: a tokenizer is read from the files of its "
                "own directory alone, by their names; take the key out"
            )


def check_tokens(path: Path, rows: int) -> None:
    """Refuses a tokenizer with a token far beyond what the model embeds: the tokenizer's library fills such a gap.

    A few tokens beyond are found in good models; a prompt that has one is refused where it is read.

    Args:
        rows: of the model's input embedding.

    Raises:
        TokenPOError: naming file, token and number.
    """
    tokens = list(_tokens(path))
    for file, token, number in tokens:
        if not isinstance(number, int) or not 0 <= number < rows + len(tokens):
            raise TokenPOError(
                f"{file} gives the token {token!r:.40} the number {number!r:.40}, but the model embeds {rows} tokens: "
                "use the tokenizer that belongs to the weights"
            )


def declared_rows(path: Path) -> int:
    """How many tokens config.json says that the model embeds, and its weights have room for, at a byte each."""
    config = _object(path / "config.json")
    told = [value for key, value in _settings(config) if key == "vocab_size" and isinstance(value, int)]
    return min(max(told, default=0), sum(file.stat().st_size for file in path.glob("*.safetensors")))


def _tokens(path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """(file, token, number) for each that a file of the tokenizer writes down."""
    file = path / "tokenizer.json"
    whole = _object(file)
    model = whole.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    for token, number in vocabulary.items() if isinstance(vocabulary, dict) else ():
        yield file, token, number
    added = whole.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        if isinstance(token, dict):
            yield file, token.get("content"), token.get("id")
    for name in ("vocab.json", "added_tokens.json"):
        for token, number in _object(path / name).items():
            yield path / name, token, number
    decoder = _object(path / _SETTINGS).get("added_tokens_decoder")
    for number, token in decoder.items() if isinstance(decoder, dict) else ():
        yield path / _SETTINGS, token, int(number) if number.isascii() and number.isdigit() else number


def _require_there(path: Path) -> None:
    if not path.exists():
        owner = path.parent
        hub = f" (the hub is asked only where {owner} is no directory)" if _HUB_ID.fullmatch(str(path)) else ""
        raise TokenPOError(f"there is no directory {path} here: give the directory of a run or of a model{hub}")


def _object(file: Path) -> dict[str, Any]:
    """What a JSON file of the directory holds; empty where there is none.

    Raises:
        TokenPOError: it is not the text of a JSON object.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TokenPOError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise TokenPOError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise TokenPOError(f"{file} must hold a JSON object")
    return content


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """Every setting of a config and of the configs inside it, as `_object` read it."""
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from _settings(item) if isinstance(item, dict) else [(key, item)]


def weights_file(path: Path) -> str:
    """The file that transformers reads: another than the usual one where the config names it."""
    return str(_object(path / "config.json").get("transformers_weights") or "model.safetensors")


def index_of(weights: Path) -> Path:
    """Where it is written which files hold the weights, where they are in several."""
    return weights.with_name(weights.name.removesuffix(_INDEX).removesuffix(".safetensors") + _INDEX)


def _shards(weights: Path) -> list[Any] | None:
    """The files that the index names; None where there is no index."""
    index = index_of(weights)
    if not index.is_file():
        return None
    try:
        return sorted(set(_object(index)["weight_map"].values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise TokenPOError(f"{index} is not a valid index of weight files") from error


def _is_plain(name: Any, suffix: str) -> bool:
    return isinstance(name, str) and name.endswith(suffix) and Path(name).name == name and "\\" not in name


def _check_weights(path: Path) -> None:
    weights = weights_file(path)
    shards = _shards(path / weights)
    missing = [name for name in shards or () if not (path / name).is_file()]
    if missing:
        raise TokenPOError(f"model directory {path} lacks the weight file {missing[0]} that its index names")
    if shards or (path / weights).is_file():
        return
    pickled = sorted(file.name for pattern in _PICKLES for file in path.glob(pattern))
    if pickled:
        raise TokenPOError(
            f"the weights in {path} are pickled ({pickled[0]}), and unpickling can run code: convert them to "
            "safetensors first (model.save_pretrained in an environment where you trust them)"
        )
    raise TokenPOError(f"model directory {path} has no weights: expected {weights}")

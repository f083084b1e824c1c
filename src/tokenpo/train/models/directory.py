"""Finds model directories, and refuses bad ones with a clear message before a loader fails on them."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...base.background import background
from ...base.errors import TokenPOError, nearest
from ...base.files import LARGEST, expanded, fingerprint, json_object, opened, read_text
from ...base.text import first_line

# File that a run writes into its model directory: the step, and the checksum of the checkpoint's weights.
RECORD = "trained.json"
ASSETS = Path(__file__).parent / "assets" / "tiny"
_HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")
# The only files that transformers may read, which `check_names` enforces: weights, configs, tokenizer, chat templates.
_TEMPLATES = "additional_chat_templates/*.jinja"
_READ = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.bpe", "*.codes", "*.spm", _TEMPLATES)
_INDEX = ".safetensors.index.json"
_GROWTH = 256  # largest factor by which a tokenizer may lengthen a text; those in use stay below ten
_PATIENCE = 20.0  # seconds to wait for the hub's first answer
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
_SETTINGS = "tokenizer_config.json"
# Files that `check_names` and `check_tokens` read, besides the index.
_CHECKED = ("config.json", _SETTINGS, "tokenizer.json", "vocab.json", "added_tokens.json")
# Settings that earlier versions of transformers wrote and no version reads.
_UNREAD = ("special_tokens_map_file",)


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
    path = path_of(path_or_hub_id)
    return path.exists() or ("/" in path_or_hub_id and path.parent.is_dir())


def path_of(name: str | Path) -> Path:
    """The path that a user names; raises TokenPOError if it is too long or access is denied."""
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
    """The directory or hub id that a user names: "tiny" is the shipped model, a run directory means its `model/`.

    Raises:
        TokenPOError: the directory does not exist, or the run has no model or one of fewer steps than its config plans.
    """
    if name == "tiny":
        return ASSETS
    path = path_of(name)
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
        raise TokenPOError(
            f"the model in {path} is that of step {made}, and the run goes on to step {planned}: {remedy}, "
            f"or give {model}"
        )
    return model


def ask_hub(name: str) -> None:
    """Asks the hub once whether it has a model, and prints that; the loader would ask for each file six times.

    Raises:
        TokenPOError: the hub has no such model, cannot be reached, or answers with a server error.
    """
    from huggingface_hub import hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    print(f"there is no directory {name} here{_similar(Path(name))}: asking the hub for it", file=sys.stderr)
    try:
        url, how = hf_hub_url(name, "config.json"), {"headers": build_hf_headers(), "follow_redirects": True}
        # The client's timeout starts anew with each byte, so the whole answer gets a limit here.
        hf_raise_for_status(background(lambda: get_session().head(url, timeout=10, **how)).result(_PATIENCE))
    except RepositoryNotFoundError as error:
        raise TokenPOError(
            f"the hub has no model {name} that you may read: give a directory or a hub id, or log in with hf auth login"
        ) from error
    except HfHubHTTPError as error:
        code = error.response.status_code
        if code == 429 or code >= 500:  # the loader would try for minutes, file by file
            raise TokenPOError(
                f"the hub answers {code} when asked for {name}: try again later, or give the directory of a model"
            ) from error
        return  # the hub has answered; the loader will report what is missing
    except Exception as error:  # the client may raise anything without a connection
        why = first_line(error) if str(error) else f"no answer in {_PATIENCE:g} seconds"
        raise TokenPOError(
            f"the hub cannot be asked for {name} ({why}): give the directory of a run or of a model"
        ) from error


def _similar(path: Path) -> str:
    """Hint at the directory that was probably meant, beside the first missing directory of the path; "" if none."""
    missing = next(x for x in (path, *path.parents) if x.parent.is_dir())
    hint = nearest(missing.name, [x.name for x in missing.parent.iterdir() if x.is_dir()])
    return f" ({hint})" if hint.startswith("did you mean") else ""


def checked(path_or_hub_id: str | Path) -> tuple[str, Path | None]:
    """(name for the loaders, directory of the checked files): a local one, or the cache of the hub's small files.

    The directory is None if the hub has no such files. Raises as `check_directory`, `ask_hub` and `check_names`.
    """
    if is_local(path_or_hub_id):
        path = path_of(path_or_hub_id)
        check_directory(path)
        return str(path), path
    name = str(path_or_hub_id)
    ask_hub(name)
    path = _cached(name)
    if path is not None:
        check_names(path)
    return name, path


def _cached(name: str) -> Path | None:
    """The cached directory of the small files of a hub model; None where the hub has no config.json."""
    from transformers.utils.hub import cached_file

    def fetched(file: str) -> str | None:
        return cached_file(name, file, _raise_exceptions_for_missing_entries=False)

    try:
        config, *_ = [fetched(file) for file in _CHECKED]
        if config is None:
            return None
        path = Path(config).parent
        fetched(index_of(Path(weights_file(path))).name)
    except OSError:  # the loader reports it
        return None
    return path


def is_run(path: Path) -> bool:
    """Whether a run wrote this directory: it has objective.txt, or a recipe's sections in its config.json."""
    sections = json_object(path / "config.json").keys()
    return (path / "objective.txt").is_file() or {"task", "method", "rollout"} <= sections


def identity(path: Path) -> str:
    """A hash of every file of a model directory that a loader may read."""
    return fingerprint(_files(path))


def _files(path: Path) -> list[Path]:
    """Every file that a loader may read; raises TokenPOError for a pipe, a device, or a text file above `LARGEST`."""
    files = sorted(file for pattern in _READ for file in path.glob(pattern) if not file.is_dir())
    for file in files:
        try:
            opened(file, None if file.suffix == ".safetensors" else LARGEST).close()
        except OSError as error:
            raise TokenPOError(
                f"{file} cannot be read: {error.strerror}; put the model's own file there, or remove it"
            ) from error
    return files


def trained(path: Path) -> Mapping[str, object]:
    """The record that a run wrote beside its model; empty if there is none, or it cannot be read."""
    return json_object(path / RECORD)


def check_directory(path: Path) -> None:
    """Refuses a directory from which no model can be loaded, or which would run its own code; see `check_names`."""
    require_there(path)
    if not path.is_dir():
        raise TokenPOError(f"{path} is a file: give the directory that holds config.json and the weights")
    if (path / "adapter_config.json").is_file():  # transformers would apply it to any weights in the directory
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
    _files(path)
    check_names(path)
    _check_weights(path)
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise TokenPOError(
            f"model directory {path} has no tokenizer (tokenizer.json): "
            "save the model's tokenizer there with tokenizer.save_pretrained"
        )


def check_names(path: Path) -> None:
    """Refuses settings that make the loaders read anything but safetensors and text files of this directory.

    Weight files must have plain names that end in .safetensors, as any other file would be unpickled. Tokenizer files
    must have their usual names. Attention and experts must be transformers' own, not code from the hub.
    """
    config = path / "config.json"
    for key, value in _settings(_object(config)):
        if "_implementation" in key and isinstance(value, str) and not value.isidentifier():
            raise TokenPOError(
                f"{config} asks for {key} = {value!r:.80}, code from the hub, which is never run here: take the key out"
            )
    weights = weights_file(path)
    names = [(config, weights.replace(_INDEX, ".safetensors"))]
    names += [(index_of(path / weights), name) for name in _shards(path / weights) or ()]
    for file, name in names:
        if not _is_plain(name, ".safetensors"):
            raise TokenPOError(
                f"{file} names the weight file {name!r:.80}: only files of the model directory itself whose names end "
                "in .safetensors are read; convert it, and put it there"
            )
    _check_tokenizer_settings(path / _SETTINGS)
    for part in ("normalizer", "decoder"):
        if (growth := _growth(_object(path / "tokenizer.json").get(part))) > _GROWTH:
            raise TokenPOError(
                f"{path / 'tokenizer.json'}: its {part} can make a text {growth:,.0f} times as long, of which "
                f"{_GROWTH} is the most: take out the replacements that grow it"
            )


def _growth(step: Any) -> float:
    """Largest factor by which the replacements of a normalizer or decoder, one after the other, lengthen a text."""
    total, pending = 1.0, [step]
    while pending:
        match pending.pop():
            case list() as steps:
                pending += steps
            case {"type": "Sequence", "normalizers": steps} | {"type": "Sequence", "decoders": steps}:
                pending.append(steps)
            case {"type": "Prepend", "prepend": str(text)}:
                total *= 1 + len(text)
            case {"type": "Replace", "pattern": {"String": str(text)}, "content": str(new)} if text:
                total *= max(1.0, len(new) / len(text))
            case {"type": "Replace", "content": str(new)}:  # it may match between any two characters
                total *= 1 + len(new)
    return total


class _TokenizerSettings(BaseModel):
    """Settings that are read only when a text is tokenized, so that a wrong one would be noticed late."""

    model_config = ConfigDict(strict=True, protected_namespaces=())

    model_max_length: Annotated[float, Field(ge=1)] | None = None
    padding_side: Literal["left", "right"] | None = None
    truncation_side: Literal["left", "right"] | None = None
    model_input_names: list[str] | None = None


def _check_tokenizer_settings(file: Path) -> None:
    settings = _object(file)
    try:
        _TokenizerSettings.model_validate(settings)
    except ValidationError as error:
        (key, *_), reason = error.errors()[0]["loc"], error.errors()[0]["msg"]
        raise TokenPOError(
            f"{file}: {key} is {settings[str(key)]!r:.40}: {reason}; correct it, or take it out"
        ) from error
    names = [(key, value) for key, value in settings.items() if key.endswith("_file") and key not in _UNREAD]
    versions = settings.get("fast_tokenizer_files")
    names += [("fast_tokenizer_files", name) for name in versions or () if not _is_plain(name, ".json")]
    for key, name in names:
        if name is not None:
            raise TokenPOError(
                f"{file} names the file {name!r:.80} in {key}: a tokenizer is read from the files of its own directory "
                "alone, by their names; take the key out"
            )


def check_tokens(path: Path, rows: int) -> None:
    """Refuses a tokenizer with a token far beyond the model's `rows` embeddings, as its library would fill the gap.

    Valid models may have a few tokens beyond; a prompt with such a token is refused when it is encoded.
    """
    tokens = list(_tokens(path))
    for file, token, number in tokens:
        if not isinstance(number, int) or not 0 <= number < rows + len(tokens):
            raise TokenPOError(
                f"{file} gives the token {token!r:.40} the number {number!r:.40}, but the model embeds {rows} tokens: "
                "use the tokenizer that belongs to the weights"
            )


def declared_rows(path: Path) -> int:
    """The vocabulary size in config.json, at most the number of bytes of the weights."""
    config = _object(path / "config.json")
    sizes = [value for key, value in _settings(config) if key == "vocab_size" and isinstance(value, int)]
    return min(max(sizes, default=0), sum(file.stat().st_size for file in path.glob("*.safetensors")))


def _tokens(path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """(file, token, number) for each token in the tokenizer's files."""
    file = path / "tokenizer.json"
    content = _object(file)
    for token, number in _inner(_inner(content, "model"), "vocab").items():
        yield file, token, number
    added = content.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        if isinstance(token, dict):
            yield file, token.get("content"), token.get("id")
    for name in ("vocab.json", "added_tokens.json"):
        for token, number in _object(path / name).items():
            yield path / name, token, number
    for number, token in _inner(_object(path / _SETTINGS), "added_tokens_decoder").items():
        yield path / _SETTINGS, token, int(number) if number.isascii() and number.isdigit() else number


def require_there(path: Path) -> None:
    """Raises TokenPOError if nothing exists at this path of a run or a model."""
    if not path.exists():
        owner = path.parent
        hub = f" (the hub is asked only where {owner} is no directory)" if _HUB_ID.fullmatch(str(path)) else ""
        raise TokenPOError(
            f"there is no directory {path} here{_similar(path)}: give the directory of a run or of a model{hub}"
        )


def _object(file: Path) -> dict[str, Any]:
    """The object in a JSON file, empty without a file; raises TokenPOError for any other content."""
    try:
        content = json.loads(read_text(file))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TokenPOError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise TokenPOError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise TokenPOError(f"{file} must hold a JSON object")
    return content


def _inner(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def _settings(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(key, value) of every setting of a config and of the configs inside it."""
    for key, value in config.items():
        yield from _settings(value) if isinstance(value, dict) else [(key, value)]


def weights_file(path: Path) -> str:
    """Name of the weights file that transformers reads: the usual one, unless the config names another."""
    return str(_object(path / "config.json").get("transformers_weights") or "model.safetensors")


def index_of(weights: Path) -> Path:
    """The index that lists the files of sharded weights."""
    return weights.with_name(weights.name.removesuffix(_INDEX).removesuffix(".safetensors") + _INDEX)


def _shards(weights: Path) -> list[Any] | None:
    """The files that the index names; None without an index."""
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

"""What a run reads besides its config: a resumed one must read the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.files import expanded, fingerprint, json_object, write_whole
from ..base.text import differences
from ..base.user_code import module_file
from ..models import locate
from ..models.directory import identity, is_local
from ..recipe.config import Config

FILE = "inputs.json"
_SETTINGS = "settings"


def contents(config: Config) -> dict[str, str]:
    """A hash of every byte of the files of model, task, verifier and method, by the setting that names them.

    Left out are a model of the hub, and a file that is not there: reading it fails with a message of its own. Of a
    function of the user's it is the file that its path names, without what that imports.
    """
    options = config.task.options
    named = {f"task.options.{name}": value for name, value in options.items() if name.endswith("path")}
    files = {name: expanded(value) for name, value in named.items() if isinstance(value, str)}
    files |= {
        "task.options.verifier": _code(str(options.get("verifier", ""))),
        "method.name": _code(config.method.name),
    }
    found = {name: fingerprint([file]) for name, file in files.items() if file is not None and file.is_file()}
    where = locate(config.model.path)
    if is_local(where) and Path(where).expanduser().is_dir():
        found["model.path"] = identity(Path(where).expanduser())
    return {f"contents of {name}": told for name, told in found.items()}


def _code(name: str) -> Path | None:
    """The file of "file.py:function" or "package.module:function"; None for a name of ours."""
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        return expanded(place)
    return module_file(place, [str(Path.cwd())]) if place else None


def binding(config: Config) -> dict[str, Any]:
    """The settings that the steps of a run depend on: all but those that may change when it is resumed."""
    settings = config.model_dump(mode="json", exclude={"output": True, "train": {"steps"}})
    return json.loads(json.dumps(settings))


def write(run: Path, config: Config) -> None:
    """What a run that begins reads, and the settings that its steps depend on, into its directory."""
    write_whole(run / FILE, json.dumps({**contents(config), _SETTINGS: binding(config)}, indent=2) + "\n")


def settings(run: Path) -> Mapping[str, Any]:
    """The settings with which the run in this directory began; empty where it is not known."""
    found = json_object(run / FILE).get(_SETTINGS)
    return found if isinstance(found, dict) else {}


def changed(run: Path, config: Config) -> list[str]:
    """One line for each input that is not what the run in this directory began with."""
    then, now = json_object(run / FILE), contents(config)
    common = then.keys() & now.keys()
    return differences({name: then[name] for name in common}, {name: now[name] for name in common})

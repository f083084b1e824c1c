"""What a run directory says of a run that another framework drives."""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from pathlib import Path

import pytest

from tokenpo.base import files
from tokenpo.runs.directory import describe_foreign


def test_settings_of_any_kind_become_plain_json(tmp_path: Path) -> None:
    config = {"engine": "other", "clip": math.inf, "where": Path("a/b"), "each": [{"lr": math.nan}]}
    describe_foreign(tmp_path, config, "the objective", ["pytest", "no-such-package"])
    said = json.loads((tmp_path / "config.json").read_text())
    assert said == {"engine": "other", "clip": None, "where": "a/b", "each": [{"lr": None}]}
    assert (tmp_path / "objective.txt").read_text() == "the objective\n"
    software = json.loads((tmp_path / "versions.json").read_text())
    assert (software["pytest"], software["no-such-package"]) == (version("pytest"), None)
    assert software["torch"] == version("torch")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe_foreign(tmp_path, {"steps": 1}, "first", [])

    def full(path: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(OSError, match="no space"):
        describe_foreign(tmp_path, {"steps": 2}, "second", [])
    assert json.loads((tmp_path / "config.json").read_text()) == {"steps": 1}
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "objective.txt", "versions.json"}

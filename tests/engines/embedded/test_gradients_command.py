"""`tokenpo gradients` as a user calls it: a table, numbers, a method of one's own, and more methods another time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenpo.cli.main import main
from tokenpo.cli.view import SilentView
from tokenpo.core.objective import Objective
from tokenpo.engines.embedded.directions import AtCheckpoint
from tokenpo.engines.embedded.loop import train

MINE = """
import tokenpo

def doubled():
    return tokenpo.method("dapo", low=0.2)
"""


def test_command(small, tmp_path: Path, coin, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """DAPO by another name is DAPO; what stands in the file is not run again, but the user's code is."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    train(small(Path("run"), train={"steps": 2}), SilentView())
    asked: list[list[str]] = []
    made_by = AtCheckpoint.directions

    def watched(at: AtCheckpoint, chosen: list[Objective], *given, moved: bool):
        asked.append([objective.name for objective in chosen])
        return made_by(at, chosen, *given, moved=moved)

    monkeypatch.setattr(AtCheckpoint, "directions", watched)
    common = ["--batches", "8", "--rollouts", "64", "--after", "3", "--json", "found.json"]
    assert main(["gradients", "run", "mine.py:doubled", "grpo", *common]) == 0
    assert asked == [["dapo", "dapo", "grpo"]] * 2
    held = json.loads(Path("found.json").read_text())
    assert held["about"]["step"] == 2 and held["about"]["kl"] > 0 and held["about"]["rollouts"] == 64
    numbers = held["methods"]["doubled"]["numbers"]
    assert numbers["against"] == numbers["after/against"] == [0, 0]
    assert numbers["useful"] == held["methods"]["dapo"]["numbers"]["useful"]
    assert held["methods"]["grpo"]["numbers"]["after/useful"] != numbers["after/useful"]
    asked.clear()
    assert main(["gradients", "run", "mine.py:doubled", "gspo", *common]) == 0
    assert asked == [["dapo", "gspo"]] * 2
    out = capsys.readouterr().out
    assert "after step 2" in out and "gspo" in out and "numbers: found.json" in out
    assert main(["gradients", "run", "gspo", *common, "--batches", "16"]) == 2
    assert "another checkpoint or setting (batches differ)" in capsys.readouterr().err

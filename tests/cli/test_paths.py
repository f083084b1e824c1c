"""A quoted ~ on the command line is the home directory, in every option that names a path."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tokenpo.cli.main import main, parser
from tokenpo.recipe.files import RECIPES, find_recipe

PLACES = [
    (["report", "~/r"], "directory"), (["report", "r", "--beside", "~/r"], "beside"),
    (["report", "r", "--out", "~/r"], "out"), (["explain", "~/r", "--methods", "grpo"], "rollouts"),
    (["explain", "r", "--methods", "grpo", "--out", "~/r"], "out"), (["eval", "--samples", "~/r"], "samples"),
    (["eval", "m", "--out", "~/r"], "out"), (["eval", "m", "--data", "~/r"], "data"),
    (["compare", "r", "--methods", "grpo", "--out", "~/r"], "out"), (["show", "grpo", "--out", "~/r"], "out"),
    (["train", "--resume", "~/r"], "resume"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "name"), PLACES)
def test_home(words: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert getattr(parser().parse_args(words), name) == tmp_path / "r"


def test_a_recipe_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copy(RECIPES / "quickstart.toml", tmp_path / "mine.toml")
    assert find_recipe("~/mine.toml") == tmp_path / "mine.toml"


def test_a_home_that_nobody_has_is_one_sentence(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["report", "~nobody-of-that-name/run"])
    said = capsys.readouterr().err
    assert "begins with the home of an unknown user: write the path in full" in said and "Traceback" not in said

"""Paths on the command line: a quoted ~ is the home directory; what cannot be written is found before work begins."""

from __future__ import annotations

import shutil

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
def test_home(words, name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert getattr(parser().parse_args(words), name) == tmp_path / "r"


def test_a_recipe_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copy(RECIPES / "quickstart.toml", tmp_path / "mine.toml")
    assert find_recipe("~/mine.toml") == tmp_path / "mine.toml"


def test_a_home_that_nobody_has_is_one_sentence(capsys):
    with pytest.raises(SystemExit):
        main(["report", "~nobody-of-that-name/run"])
    said = capsys.readouterr().err
    assert "begins with the home of an unknown user: write the path in full" in said and "Traceback" not in said


# None of them has anything to read, and each is to find first that it has nowhere to write.
WRITERS = [
    (["exact", "nobody"], "json"), (["exact", "nobody"], "page"), (["gradients", "nothing"], "json"),
    (["golden", "nobody"], "out"), (["show", "nobody", "--fingerprint"], "out"), (["report", "nothing"], "out"),
    (["explain", "nothing", "--methods", "nobody"], "out"), (["eval", "nothing"], "out"),
    (["eval", "--samples", "nothing"], "out"), (["compare", "nothing", "--methods", "nobody"], "out"),
    (["compare", "--runs", "nothing"], "out"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "name"), WRITERS)
def test_a_place_to_write_is_tried_before_work_begins(words, name, tmp_path, capsys):
    (tmp_path / "file").touch()
    there = tmp_path / "file" / "x.json"
    assert main([*words, f"--{name}", str(there)]) == 2
    said = capsys.readouterr().err
    assert said == f"tokenpo: cannot write {there}: Not a directory; give another place with --{name}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_directory_is_no_file_to_write(tmp_path, capsys):
    assert main(["exact", "nobody", "--page", str(tmp_path)]) == 2
    assert f"cannot write {tmp_path}: Is a directory" in capsys.readouterr().err


def test_every_option_that_names_a_place_to_write_is_tried():
    """But those of train and launch, which make the run directory before anything else."""
    (commands,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    named = {
        (command, action.dest)
        for command, its in commands.items()
        for action in its._actions
        if action.dest in ("out", "json", "page") and action.nargs != 0
    }
    listed = "train launch recipes report methods show check golden compare explain eval exact gradients completion"
    assert list(commands) == listed.split()
    assert named - {("train", "out"), ("launch", "out")} == {(words[0], name) for words, name in WRITERS}

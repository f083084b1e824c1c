"""Mistakes in parts of a user's own, as the commands tell them: a sentence with the place, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from own_method import FILE
from tokenpo.cli.main import main

SHORT = (
    "train.steps=1", "rollout.prompts=4", "rollout.group_size=4", "rollout.max_new_tokens=64", "evaluate.problems=4",
    "evaluate.every=0", "output.rollouts_every=1",
)  # fmt: skip
SET = [word for setting in SHORT for word in ("--set", setting)]
BROKEN = FILE.replace("        place = ", "        {}['x']\n        place = ")
LINE = BROKEN.splitlines().index("        {}['x']") + 1
SAID = f"objective late: weight Position() raised KeyError at mine.py:{LINE}: 'x'"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(BROKEN, encoding="utf-8")


def test_every_command_tells_what_a_part_raised(capsys: pytest.CaptureFixture) -> None:
    assert main(["train", "quickstart", *SET, "--method", "mine.py:late", "--no-report"]) == 2
    assert capsys.readouterr().err == f"tokenpo: {SAID}\n"
    assert main(["train", "quickstart", *SET, "--no-report"]) == 0
    capsys.readouterr()
    assert main(["explain", "runs/quickstart-tepo-seed0", "--methods", "grpo,mine.py:late"]) == 2
    assert capsys.readouterr().err == f"tokenpo: {SAID}\n"
    assert main(["check", "mine.py:late"]) == 1
    assert capsys.readouterr().out.endswith(f"a finite loss and gradient: {SAID}\n")


def test_training_names_an_input_that_is_read_undeclared(capsys: pytest.CaptureFixture) -> None:
    reading = FILE.replace("return place / ", 'return batch.need("old_entropy") * place / ')
    Path("mine.py").write_text(reading, encoding="utf-8")
    assert main(["train", "quickstart", *SET, "--method", "mine.py:late", "--no-report"]) == 2
    said = 'objective late: Position() reads old_entropy, which it does not declare: put reads = {"old_entropy"} into'
    assert capsys.readouterr().err == f"tokenpo: {said} its class\n"
    assert main(["check", "mine.py:late"]) == 1
    out = capsys.readouterr().out
    assert out.endswith(f"a finite loss and gradient: {said} its class\n")
    Path("mine.py").write_text(
        reading.replace('response."""', 'response."""\n\n    reads = {"old_entropy"}'), encoding="utf-8"
    )
    assert main(["train", "quickstart", *SET, "--method", "mine.py:late", "--no-report"]) == 0
    assert main(["check", "mine.py:late"]) == 0


def test_training_names_the_part_of_a_loss_that_is_no_number(capsys: pytest.CaptureFixture) -> None:
    Path("mine.py").write_text(FILE.replace("return place / ", "return torch.nan * place / "), encoding="utf-8")
    assert main(["train", "quickstart", *SET, "--method", "mine.py:late", "--no-report"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tokenpo: step 1, update 1 of ")
    assert "the loss of late is nan: weight Position() is nan on token 0 of rollout " in said

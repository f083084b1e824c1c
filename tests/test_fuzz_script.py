"""The script that fuzzes files tells a refusal from an acceptance, a traceback and a hang."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError


def outcome(run: Path) -> None:
    """Metrics without a first step are accepted, without any step refused, others hang or break."""
    text = (run / "metrics.jsonl").read_text()
    if "step" not in text:
        raise TokenPOError("no step")
    if "quoted" in text:
        raise TokenPOError(text)
    if "hang" in text:
        time.sleep(60)
    if "broken" in text:
        raise KeyError("broken")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("step", "accepted"),
        ("", "refused"),
        ("step quoted\n\x1b[31m", "refused"),  # a sentence is one line, whatever it quotes
        ("step hang", "hang"),
        ("step broken", "KeyError: 'broken' (test_fuzz"),
    ],
)
def test_every_outcome_is_told_apart(tmp_path, monkeypatch, content, told):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    fuzz = importlib.import_module("fuzz")
    monkeypatch.setattr(fuzz, "LONGEST", 1)
    (tmp_path / "metrics.jsonl").write_text(content)
    with fuzz.on_the_clock():
        assert fuzz.read_case(outcome, tmp_path).startswith(told)


def test_a_few_seconds_find_nothing(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    fuzz = importlib.import_module("fuzz")
    assert fuzz.main(["--seconds", "6", "--seed", "7", "--only", "problems", "metrics"]) == 0
    lines = capsys.readouterr().out.splitlines()
    counted = {line[:28].strip(): [int(x.replace(",", "")) for x in line[28:].split()] for line in lines[1:] if line}
    assert set(counted) == {"problems", "metrics", "all"}
    assert all(row[0] > 0 and row[3:] == [0, 0] for row in counted.values())


def test_whatever_lies_in_the_place_of_a_file_is_refused_or_accepted(monkeypatch, capsys):
    """Pipes, devices, links, directories, a terabyte of zeros, with every format: no traceback, no hang."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    fuzz = importlib.import_module("fuzz")
    assert fuzz.main(["--seconds", "0"]) == 0, capsys.readouterr().out

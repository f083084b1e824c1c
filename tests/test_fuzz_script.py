"""The script that fuzzes files tells a refusal from an acceptance, a traceback and a hang."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import fuzz
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
    monkeypatch.setattr(fuzz, "LONGEST", 1)
    (tmp_path / "metrics.jsonl").write_text(content)
    with fuzz.on_the_clock():
        assert fuzz.read_case(outcome, tmp_path).startswith(told)


def test_every_format_with_what_may_lie_in_its_place_and_a_few_damages(capsys):
    """Pipes, devices, links, directories, a terabyte of zeros, then half a second of damages: no traceback, no hang."""
    status, shown = fuzz.main(["--seconds", "0.5", "--seed", "7"]), capsys.readouterr().out
    assert status == 0, shown
    lines = shown.splitlines()
    counted = {line[:28].strip(): [int(x.replace(",", "")) for x in line[28:].split()] for line in lines[1:] if line}
    assert counted.keys() == {*fuzz.FORMATS, "all"}
    assert counted["all"][0] > len(fuzz.FORMATS) * len(fuzz.SPECIAL)

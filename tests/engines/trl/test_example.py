"""The example of TRL runs in small: two updates with LoRA, two rewards, an evaluation."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from foreign_support import need

need("trl", "trl is not installed: its example was not run")
EXAMPLE = Path(__file__).parents[3] / "examples" / "trl_gsm8k.py"


def test_it_trains_and_evaluates(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("sys.argv", [EXAMPLE.name, "--small"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    assert "updates: 2" in said and "test reward is a number: True" in said


def test_its_rewards_read_the_columns() -> None:
    rewards = runpy.run_path(str(EXAMPLE))
    said = [[{"role": "assistant", "content": text}] for text in ("12 - 4 = 8\n#### 8", "#### 1,008", "eight")]
    assert rewards["correct"](said, answer=["#### 8", "#### 8", "#### 8"], question=[""] * 3) == [1.0, 0.0, 0.0]
    assert rewards["formatted"](said, answer=[""] * 3) == [0.1, 0.1, 0.0]

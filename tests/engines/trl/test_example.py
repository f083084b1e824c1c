"""The example of TRL runs in small, and the short script of docs/trl.md as it is written there."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from foreign_support import need
from trl_support import run_python

need("trl", "trl is not installed: its example was not run")
ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "trl_gsm8k.py"


def test_the_example_trains_and_evaluates(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Two updates with LoRA, two rewards, an evaluation."""
    monkeypatch.setattr("sys.argv", [EXAMPLE.name, "--small"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert "updates: 2" in printed and "test reward is a number: True" in printed


def test_its_rewards_read_the_columns() -> None:
    rewards = runpy.run_path(str(EXAMPLE))
    texts = [[{"role": "assistant", "content": text}] for text in ("12 - 4 = 8\n#### 8", "#### 1,008", "eight")]
    assert rewards["correct"](texts, answer=["#### 8", "#### 8", "#### 8"], question=[""] * 3) == [1.0, 0.0, 0.0]
    assert rewards["formatted"](texts, answer=[""] * 3) == [0.1, 0.1, 0.0]


def test_the_short_script_trains(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "trl.md").read_text(encoding="utf-8")
    section = page.partition("## In short")[2].partition("\n## ")[0]
    [script] = re.findall(r"^```py\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text(script)
    run_python("script.py", cwd=tmp_path, timeout=280)
    lines = (tmp_path / "runs/trl-hapo/tokenpo/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    assert [step["step"] for step in steps] == [1, 2]  # rollout batches, of four updates each
    assert any(step["zero_advantage_groups"] < 1 for step in steps)  # else nothing is learnt, and the loss is 0

"""An example, the notebook that trains, and the script of docs/trl.md."""

import json
import re
import runpy
from pathlib import Path

import notebooks
import pytest

from run_views import lines
from trl_support import run_python

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


def test_the_notebook_trains_in_both_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch of a small random model in place of SmolLM2's six."""
    text = (EXAMPLE.parent / "train_smollm2.ipynb").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE))["tiny_model"](tmp_path / "small")
    given = 'MODEL, BATCHES = \\"models/smollm2\\", 6'
    assert text.count(given) == 1
    made = notebooks.executed(text.replace(given, 'MODEL, BATCHES = \\"small\\", 1'), "train_smollm2.ipynb")
    assert "TRL   ours" in made and made.count(" of 100 samples are right") == 3


def test_the_script_for_a_data_file_trains(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "trl.md").read_text(encoding="utf-8")
    section = page.partition("## A script that runs as it is")[2].partition("\n## ")[0]
    [rows], [script] = (
        re.findall(rf"^```{kind}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL) for kind in ("json", "py")
    )
    shown = [json.loads(row) for row in rows.splitlines()]
    # Sums on a dial, from left to right modulo 10, which the tiny model solves now and then.
    sums = [(f"{a}+{b}*{a}-{b}=", ((a + b) * a - b) % 10) for a in range(1, 10) for b in range(1, 10)]
    data = [{"prompt": prompt, "answer": str(answer)} for prompt, answer in sums]
    assert all(row in data for row in shown)
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    (tmp_path / "script.py").write_text(script)
    run_python("script.py", cwd=tmp_path, timeout=280)
    steps = lines(tmp_path / "runs/trl-dapo/tokenpo")
    assert [step["step"] for step in steps] == [1, 2]  # rollout batches, of four updates each
    assert any(step["zero_advantage_groups"] < 1 for step in steps)  # else nothing is learnt, and the loss is 0

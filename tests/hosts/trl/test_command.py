"""An example, the notebook that trains, and the script of docs/trl.md."""

import json
import re
import runpy
from pathlib import Path

import notebooks
import pytest

from run_views import lines
from tokenpo.lab.audit import read_lines
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


def blocks(page: str, heading: str, kind: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    return re.findall(rf"^```{kind}\n(.*?)^```$", re.split(r"^##+ ", text, flags=re.M)[0], re.MULTILINE | re.DOTALL)


def test_the_script_for_a_chat_model_trains_and_its_adapter_merges(tmp_path: Path) -> None:
    """With two small updates in place of the page's hundred; then the lines of docs/after_training.md that merge."""
    runpy.run_path(str(EXAMPLE))["tiny_model"](tmp_path / "small")
    reward, script, _ = blocks("trl.md", "## A chat model on your data", "py")
    small = {
        'model="owner/model"': 'model="small"',
        "bf16=True": "use_cpu=True",
        "per_device_train_batch_size=16": "per_device_train_batch_size=8",
        "steps_per_generation=8": "steps_per_generation=2",
        "gradient_accumulation_steps=4": "gradient_accumulation_steps=1",
        "max_completion_length=512": "max_completion_length=4",
        "max_steps=100": "max_steps=2",
        "save_steps=20": "save_steps=2",
    }
    for page, here in small.items():
        assert script.count(page) == 1
        script = script.replace(page, here)
    rows = [{"prompt": f"What is {a} + 4?", "answer": f"{a} + 4 = {a + 4}\n#### {a + 4}"} for a in range(1, 5)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(reward)
    correct = runpy.run_path(str(tmp_path / "reward.py"))["correct"]
    said = [[{"content": text}] for text in ("It is 1,234.50", "2 + 5 = 7.", "7 + 1", "eight")]
    assert correct(said, ["1234.5", "2 + 5 = 7\n#### 7", 7, "8"]) == [1.0, 1.0, 0.0, 0.0]
    (tmp_path / "script.py").write_text(script)
    run_python("script.py", cwd=tmp_path, timeout=280)
    assert len(lines(tmp_path / "runs/mine/tokenpo")) == 1
    logged = read_lines(tmp_path / "runs/mine/completions")
    assert {line.reference for line in logged} <= {row["answer"] for row in rows} and len(logged) == 16
    [merge] = blocks("after_training.md", "## Merge an adapter of TRL", "py")
    (tmp_path / "merge.py").write_text(merge)
    run_python("merge.py", cwd=tmp_path, timeout=280)
    assert {"model.safetensors", "tokenizer.json"} <= {file.name for file in (tmp_path / "merged").iterdir()}


def test_the_script_for_a_data_file_trains(tmp_path: Path) -> None:
    [rows], [script] = (blocks("trl.md", "## A script that runs as it is", kind) for kind in ("json", "py"))
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

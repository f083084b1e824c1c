"""`tokenpo train` and `compare --engine trl` as a person types them, the example, the script of docs/trl.md."""

import json
import re
import runpy
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from foreign_support import need
from run_views import lines
from tokenpo import models as lm
from trl_support import run_python

SMALL = ["rollout.prompts=4", "rollout.max_new_tokens=24", "evaluate.problems=4", "evaluate.samples=0"]
ALONE = """
from accelerate import PartialState
from tokenpo.engines.trl.contract import launched_alone
print("alone", launched_alone(PartialState(cpu=True).num_processes))
"""


def tokenpo(*arguments: object, changes: list[str]) -> CompletedProcess[str]:
    words = [word for change in changes for word in ("--set", change)]
    return run_python("-m", "tokenpo", *map(str, arguments), "--engine", "trl", *words)


@pytest.mark.parametrize(("processes", "alone"), [(2, True), (1, False)])
def test_a_process_that_accelerate_left_alone_is_known(processes: int, alone: bool, tmp_path: Path) -> None:
    """Without a GPU its launcher starts one process, however many are asked for."""
    (tmp_path / "script.py").write_text(ALONE)
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes", str(processes), str(tmp_path / "script.py")]
    assert f"alone {alone}" in run_python("-m", *launch, timeout=200).stdout


def test_a_recipe_is_trained_by_trl_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    records = out / "trl" / "tokenpo"
    changes = [
        *SMALL, "train.minibatches=2", "rollout.group_size=4", "output.checkpoint_every=1", "output.trace_every=1",
        "train.kl_target=0.004", "train.steps=1",
    ]  # fmt: skip
    first = tokenpo("train", "quickstart", "--method", "hapo", "--out", out, changes=changes)
    assert "held-out greedy accuracy: " in first.stdout
    assert (records / "report.html").is_file()
    assert [line["step"] for line in lines(records)] == [0, 1]
    assert all("eval/accuracy" in line for line in lines(records))
    again = tokenpo("train", "--resume", out, "--no-report", changes=["train.steps=2"])
    before, made, last = lines(records)
    assert [before["step"], made["step"], last["step"]] == [0, 1, 2]
    assert (made["update"], last["update"], last["accuracy"]) == (2, 4, last["reward"])
    # The first batch after the resumption is drawn at temperatures that HAPO remembers.
    assert made["temperature_mean"] == 1.0 != last["temperature_mean"]
    assert made["kl_rate"] == made["lr"] / 2e-4 == 0.125  # of its recipe's learning rate
    assert "model: " in again.stdout
    assert lm.load(out / "model").eos_ids
    config = json.loads((records / "config.json").read_text())
    assert (config["engine"], config["task"]["name"], config["method"]["name"]) == ("trl", "dial_sum", "hapo")


def test_a_recipe_with_a_teacher_is_trained_by_trl(tmp_path: Path) -> None:
    out, changes = tmp_path / "run", ["train.steps=1", "evaluate.problems=0", "teacher.path=tiny"]
    tokenpo("train", "quickstart", "--method", "opd", "--out", out, changes=[*SMALL, *changes])
    (made,) = lines(out / "trl" / "tokenpo")
    assert abs(made["teacher_kl"]) < 1e-5  # the student's own weights


@pytest.mark.slow
def test_two_methods_and_two_seeds_are_compared(tmp_path: Path) -> None:
    out, words = tmp_path / "out", ["--methods", "grpo,dapo", "--seeds", "2", "--jobs", "1", "--metrics", "accuracy"]
    changes = [*SMALL, "train.steps=2", "train.minibatch_by=rows"]
    tokenpo("compare", "quickstart", *words, "--out", out, changes=changes)
    assert "accuracy" in (out / "compare.json").read_text(encoding="utf-8")
    runs = sorted(path.name for path in out.glob("*-seed*"))
    assert runs == ["dapo-seed0", "dapo-seed1", "grpo-seed0", "grpo-seed1"]
    assert all((out / run / "trl" / "tokenpo" / "metrics.jsonl").is_file() for run in runs)


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


def test_the_script_for_a_data_file_trains(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "trl.md").read_text(encoding="utf-8")
    section = page.partition("## Your own data")[2].partition("\n## ")[0]
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
    steps = lines(tmp_path / "runs/trl-hapo/tokenpo")
    assert [step["step"] for step in steps] == [1, 2]  # rollout batches, of four updates each
    assert any(step["zero_advantage_groups"] < 1 for step in steps)  # else nothing is learnt, and the loss is 0


SHORT = (
    "evaluate.every=0", "evaluate.problems=0", "model.device=cpu", "train.autocast=false", "train.steps=2",
    "train.minibatches=2", "rollout.prompts=4", "rollout.group_size=2", "rollout.max_new_tokens=8",
    # Of a random model all answers are wrong, so every group would be drawn again.
    "rollout.dynamic_sampling=false",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("hapo_qwen3_8b", "AdaptiveTemperature(tau=0.05"),
        pytest.param("tr_grpo_qwen2.5_7b", "ReferenceKl(beta=0.001", marks=pytest.mark.slow),
    ],
)
def test_it_trains_with_what_the_paper_asks_for(name: str, part: str, model_dir: Path, tmp_path: Path) -> None:
    """math_dapo gives -1 to a wrong answer. The warm-up is counted in updates."""
    need("verl.utils.reward_score", "verl is not installed: its verifier was not called by TRL")
    import pyarrow
    import pyarrow.parquet

    rows = [
        {"prompt": [{"role": "user", "content": f"{a}+1="}], "data_source": "math_dapo",
         "reward_model": {"ground_truth": str(a + 1), "style": "rule"}}
        for a in range(8)
    ]  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    files = [f"task.options.{key}={tmp_path / 'rows.parquet'}" for key in ("path", "test_path")]
    changes = [*SHORT, *files, f"model.path={model_dir}", "train.warmup=160", f"output.dir={tmp_path / 'run'}"]
    done = tokenpo("train", f"papers/{name}", changes=changes)
    assert "the section [verl] (data, actor_rollout_ref, trainer) is for verl" in done.stderr
    records = tmp_path / "run" / "trl" / "tokenpo"
    assert part in (records / "objective.txt").read_text(encoding="utf-8")
    made = lines(records)
    assert [line["reward"] for line in made] == [-1.0, -1.0]
    # 1e-6 x 1/161 at the second of all updates, 3/161 at the fourth.
    assert [line["lr"] for line in made] == pytest.approx([1e-6 / 161, 3e-6 / 161], rel=1e-6)

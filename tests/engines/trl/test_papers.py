"""Recipes of papers in TRL, in small: verl's columns, a chat model, verl's verifier; in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreign_support import need
from trl_support import run_python

pytestmark = pytest.mark.usefixtures("trl_here")
SMALL = (
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
    changes = [*SMALL, *files, f"model.path={model_dir}", "train.warmup=160", f"output.dir={tmp_path / 'run'}"]
    words = ["train", f"papers/{name}", "--engine", "trl", *(w for change in changes for w in ("--set", change))]
    done = run_python("-m", "tokenpo", *words)
    assert "the section [verl] (data, actor_rollout_ref, trainer) is for verl" in done.stderr
    records = tmp_path / "run" / "trl" / "tokenpo"
    assert part in (records / "objective.txt").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in (records / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["reward"] for line in lines] == [-1.0, -1.0]
    # 1e-6 x 1/161 at the second of all updates, 3/161 at the fourth.
    assert [line["lr"] for line in lines] == pytest.approx([1e-6 / 161, 3e-6 / 161], rel=1e-6)

"""`tokenpo compare --engine trl`: processes of TRL's, read and judged like ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreign_support import need

need("trl", "trl is not installed: no comparison was trained with it")

from tokenpo.cli.main import main  # noqa: E402

SMALL = ("train.steps=2", "rollout.prompts=4", "rollout.max_new_tokens=24", "evaluate.problems=4", "evaluate.samples=0")


@pytest.mark.slow
def test_two_methods_and_two_seeds(tmp_path: Path) -> None:
    words = [word for setting in (*SMALL, "train.minibatch_by=rows") for word in ("--set", setting)]
    given = ["compare", "quickstart", "--engine", "trl", "--methods", "grpo,dapo", "--seeds", "2", "--jobs", "1"]
    assert main([*given, "--metrics", "accuracy", *words, "--out", str(tmp_path / "out")]) == 0
    made = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))
    assert "accuracy" in json.dumps(made)
    runs = sorted(path.name for path in (tmp_path / "out").glob("*-seed*"))
    assert runs == ["dapo-seed0", "dapo-seed1", "grpo-seed0", "grpo-seed1"]
    assert all((tmp_path / "out" / run / "trl" / "tokenpo" / "metrics.jsonl").is_file() for run in runs)

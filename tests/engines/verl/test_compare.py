"""`tokenpo compare --engine verl`: a run of verl's for every method and seed, with a Ray of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from foreign_support import need

need("transfer_queue", "verl's V1 trainer is not installed: no comparison was trained with it")
need("verl.workers.utils.padding", "verl is not installed: no comparison was trained with it")

from engines.verl.support import run  # noqa: E402


def command(directory: Path) -> list[str]:
    """Two methods, two seeds, two steps each, as small as can be."""
    recipe = {
        "model": {"path": str(directory / "model")},
        "rollout": {"prompts": 4, "group_size": 4, "max_new_tokens": 32},
        "train": {"steps": 2, "minibatches": 2, "lr": 3e-4},
        "evaluate": {"problems": 8, "every": 2},
        "output": {"checkpoint_every": 1},
        "verl": run.tables(run.CPU),
    }
    (directory / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    given = ["compare", "recipe.json", "--engine", "verl", "--methods", "grpo,gspo", "--seeds", "2", "--out", "out"]
    return [sys.executable, "-m", "tokenpo.cli.main", *given]


@pytest.mark.slow
def test_two_methods_and_two_seeds(tmp_path: Path) -> None:
    """Of the default metrics those that verl logs are compared; asked again, nothing is trained twice."""
    run.model(tmp_path / "model")
    run.as_given(command(tmp_path), tmp_path, timeout=1800)
    made = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))
    assert {"accuracy", "area", "seconds"} <= {metric["name"] for metric in made["metrics"]}
    runs = sorted(tmp_path.glob("out/*-seed*"))
    assert [path.name for path in runs] == ["grpo-seed0", "grpo-seed1", "gspo-seed0", "gspo-seed1"]
    before = [(path / "metrics.jsonl").stat().st_mtime_ns for path in runs]
    assert "4 runs, 4 done" in run.as_given(command(tmp_path), tmp_path, timeout=120)
    assert [(path / "metrics.jsonl").stat().st_mtime_ns for path in runs] == before

"""Run directories as far as a comparison reads them: config and metrics as the trainer writes them."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenpo.lab.compare.plan import PlannedRun

RECIPE = """
[model]
device = "cpu"
[rollout]
prompts = 2
group_size = 2
max_new_tokens = 8
[train]
steps = 20
minibatches = 2
[evaluate]
problems = 4
samples = 2
every = 5
"""


def rows(steps: int, every: int, height: Callable[[int], float]) -> list[dict[str, Any]]:
    """Metrics of a run whose accuracies at step s are `height(s)`."""
    held = [{"step": s, "eval/accuracy": height(s), "eval/avg": height(s) / 2} for s in range(0, steps + 1, every)]
    by_step = {row["step"]: row for row in held}
    for s in range(1, steps + 1):
        by_step[s] = {
            "step": s, "accuracy": height(s), "kl": height(s) / 100, "entropy": 0.2 - 0.001 * s, "length": 30.0 + s,
            "grad_norm": float(s % 2),
            "seconds_rollout": 1.0, "seconds_update": 0.5, "seconds_other": 0.25, "seconds_evaluation": 100.0,
        } | by_step.get(s, {})  # fmt: skip
    return [by_step[s] for s in sorted(by_step)]


def write_lines(path: Path, lines: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def write_run(
    run: PlannedRun, lines: Iterable[Mapping[str, Any]], *, versions: Mapping[str, Any] | None = None
) -> None:
    """A run directory as far as a comparison reads it."""
    run.directory.mkdir(parents=True, exist_ok=True)
    (run.directory / "config.json").write_text(json.dumps(run.config.model_dump()))
    write_lines(run.directory / "metrics.jsonl", lines)
    (run.directory / "objective.txt").write_text("objective\n")
    (run.directory / "versions.json").write_text(json.dumps(versions or {"torch": "2.0"}))

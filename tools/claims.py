"""The claims of the papers on the embedded bed: runs, numbers, and the ledger docs/claims.md.

    python tools/claims.py run --out runs/claims       train and evaluate what is missing: hours, resumable
    python tools/claims.py collect --out runs/claims   write every number of the runs to docs/claims.json
    python tools/claims.py page                        write docs/claims.md from docs/claims.json
    python tools/claims.py page --check                exit 1 if the page is not what the numbers say

Tasks, budgets, thresholds, claims and their tests are the constants below; they were written down before the runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ledger

ROOT = Path(__file__).resolve().parents[1]
NUMBERS, PAGE = ROOT / "docs" / "claims.json", ROOT / "docs" / "claims.md"
SEEDS = 10
METHODS = ("grpo", "dapo", "tepo", "gtpo", "grpo_s", "tr_grpo", "hapo")
ABLATIONS = ("tepo_v1", "hapo:tau=0", "hapo:token_mean_advantage=false", "hapo:beta=0", "hapo:alpha=0")
METRICS = (
    "accuracy", "area", "steps", "train-area", "train-steps", "entropy", "mean:entropy", "length", "sd:grad_norm",
    "mean:grad_norm",
)  # fmt: skip
SAMPLED = ("dapo", "gtpo", "grpo_s")
K = (1, 4, 16)
PROBLEMS = 100


@dataclass(frozen=True)
class Task:
    """A recipe, the accuracy that `steps` waits for, the methods, and what `tokenpo eval` is told of its problems."""

    recipe: str
    threshold: float
    methods: tuple[str, ...]
    evaluation: tuple[str, ...]


TASKS = (
    Task("quickstart", 0.9, METHODS + ABLATIONS, ("--max-new-tokens", "80")),
    Task("long_chains", 0.5, METHODS + ABLATIONS, ("--max-new-tokens", "112", "--task-option", "operands=[8,16]")),
)


def comparison(task: Task, out: Path, methods: Sequence[str]) -> list[str]:
    """The command that trains; the same one again skips what is done."""
    settings = ("train.steps=30", "evaluate.samples=0", "evaluate.every=5")
    return [
        "compare", task.recipe, "--methods", ",".join(methods), "--seeds", str(SEEDS), "--out", str(out / task.recipe),
        "--threshold", str(task.threshold), *(word for setting in settings for word in ("--set", setting)),
        "--metrics", ",".join(METRICS),
    ]  # fmt: skip


def evaluations(task: Task, out: Path) -> Iterator[tuple[str, int, Path, list[str]]]:
    """(method, seed, directory, command) of each evaluation by samples; problems and draws are those of the seed."""
    for method in SAMPLED:
        for seed in range(SEEDS):
            name = f"{method}-seed{seed}"
            directory = out / f"{task.recipe}-eval" / name
            yield method, seed, directory, [
                "eval", str(out / task.recipe / name), "--task", "dial_sum", *task.evaluation, "--seed", str(seed),
                "--problems", str(PROBLEMS), "--samples-per-prompt", str(max(K)), "--k", ",".join(map(str, K)),
                "--rows", "400", "--device", "cpu", "--out", str(directory),
            ]  # fmt: skip


def run(out: Path) -> None:
    """Everything that is missing: first the methods of the claims, then the ablations, then the samples."""
    tokenpo = [sys.executable, "-m", "tokenpo"]
    for count in (len(METHODS), None):
        for task in TASKS:
            subprocess.run([*tokenpo, *comparison(task, out, task.methods[:count])], check=True)
    for task in TASKS:
        for *_, directory, command in evaluations(task, out):
            if not (directory / "results.json").is_file():
                subprocess.run([*tokenpo, *command], check=True)


def collect(out: Path) -> None:
    """docs/claims.json: values by task, metric, method and seed, with the runs whose number is a lower bound."""
    tasks = {task.recipe: _numbers(task, out) for task in TASKS}
    NUMBERS.write_text(json.dumps(tasks, indent=1) + "\n", encoding="utf-8")


def _numbers(task: Task, out: Path) -> dict[str, Any]:
    found = json.loads((out / task.recipe / "compare.json").read_text(encoding="utf-8"))
    metrics = {
        metric["name"]: {
            label: [_short(by_seed[str(seed)]) for seed in range(SEEDS)] for label, by_seed in metric["values"].items()
        }
        for metric in found["metrics"]
    }
    for method, seed, directory, _ in evaluations(task, out):
        for number in json.loads((directory / "results.json").read_text(encoding="utf-8"))["numbers"]:
            if number["metric"] == "pass@k":
                values = metrics.setdefault(f"pass@{number['k']}", {}).setdefault(method, [None] * SEEDS)
                values[seed] = _short(number["value"])
    never = {metric["name"]: {k: v for k, v in metric["censored"].items() if v} for metric in found["metrics"]}
    return {
        "threshold": task.threshold,
        "versions": found["versions"],
        "values": metrics,
        "never": {name: of for name, of in never.items() if of},
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def commands() -> Mapping[str, str]:
    """What the page shows as having made its numbers, by task."""
    out = Path("runs/claims")
    shown = {}
    for task in TASKS:
        *_, sampled = next(evaluations(task, out))
        lines = (comparison(task, out, task.methods), sampled)
        shown[task.recipe] = "\n".join("tokenpo " + " ".join(line) for line in lines)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "collect", "page"))
    parser.add_argument("--out", type=Path, default=Path("runs/claims"))
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.what == "run":
        run(chosen.out)
    elif chosen.what == "collect":
        collect(chosen.out)
    else:
        text = ledger.page(json.loads(NUMBERS.read_text(encoding="utf-8")), commands())
        if chosen.check:
            fresh = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
            print("docs/claims.md is fresh" if fresh else "docs/claims.md is stale: python tools/claims.py page")
            return int(not fresh)
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

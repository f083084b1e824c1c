"""Writes run directories as a trainer would."""

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from page_tree import Node, read_html
from tokenpo.lab.report.page import write_report
from written_runs import write_lines

CONFIG = {
    "name": "quickstart",
    "seed": 3,
    "model": {"path": "tiny", "dtype": "float32"},
    "task": {"name": "dial_sum", "options": {"operands": 8}},
    "method": {"name": "hapo"},
    "rollout": {"prompts": 32, "group_size": 8, "max_new_tokens": 64},
    "train": {"steps": 60, "minibatches": 4, "lr": 2e-4},
}
OBJECTIVE = "objective hapo\n  credit      TokenGroupAverage()\n"
VERSIONS = {"tokenpo": "0.1.0", "torch": "2.13.0", "python": "3.11"}


def metrics_row(step: int, steps: int, rng: random.Random) -> dict[str, float | None]:
    """One line of metrics: accuracy and length grow, entropy falls, a held-out evaluation every ten steps."""
    p, noise = step / steps, rng.random
    accuracy, entropy = 0.45 + 0.5 * p + 0.05 * noise(), 0.2 * (1 - p) + 0.02 + 0.01 * noise()
    row: dict[str, float | None] = {
        "step": step, "reward": accuracy - 0.03, "accuracy": accuracy,
        "entropy": entropy, "entropy_q10": 0.001, "entropy_q50": 0.3 * entropy, "entropy_q90": 2.6 * entropy,
        "length": 29 + 15 * p + noise(), "length_max": 46 + 4 * p,
        "ratio_mean": 1 + 0.002 * noise(), "ratio_min": 0.5 + 0.2 * noise(), "ratio_max": 1.4 + noise(),
        "clip_fraction": 0.02 * (1 - p) + 0.003 * noise(),
        "clip_low_fraction": 0.008 * (1 - p), "clip_high_fraction": 0.01 * (1 - p),
        "kl": 0.004 * (1 - p) + 0.0005 * noise(),
        "zero_advantage_groups": 0.05 + 0.85 * p, "effective_tokens": 0.95 - 0.85 * p, "discarded_groups": 0.0,
        "truncated": 0.01 * noise(), "grad_norm": 0.6 * (1 - 0.7 * p) + 0.1 * noise(),
        "loss": 0.01 * noise() - 0.005, "lr": 2e-4 * min(step / 5, 1), "temperature_mean": 1 + 0.002 * noise(),
        "seconds_rollout": 0.35 + 0.1 * p + 0.02 * noise(), "seconds_update": 0.3 + 0.02 * noise(),
        "seconds_other": 0.03,
    }  # fmt: skip
    if step % 10 == 0 or step == 1:
        held = 0.31 + 0.68 * p
        half = 1.96 * math.sqrt(held * (1 - held) / 200)
        row |= {"eval/accuracy": held, "eval/low": held - half, "eval/high": min(held + half, 1)}
        row["eval/length"] = 29 + 15 * p
    return row


def rollout(step: int, row: int, rng: random.Random) -> dict[str, Any]:
    """One traced response, one of two to its prompt."""
    tokens = [*rng.choices(["+", "=", "3", " ", "7"], k=rng.randint(15, 40)), "<|end|>"]
    entropy = [0.7 * rng.random() for _ in tokens]
    ratio = [math.exp(rng.gauss(0, 0.2)) for _ in tokens]
    weight = [0.7 + 0.9 * h for h in entropy]
    correct = rng.random() < step / 60
    advantage = 0.9 if correct else -1.1
    terms = {
        "advantage": [advantage * w for w in weight],
        "weight": weight,
        "ratio": ratio,
        "clipped": [int(not 0.85 < r < 1.2) for r in ratio],
        "low": [0.8] * len(tokens),
        "high": [1.2] * len(tokens),
        "coefficient": [1 / 8000] * len(tokens),
        "loss": [-r * advantage * w for r, w in zip(ratio, weight, strict=True)],
        "logprob": [-h * rng.random() * 1.5 for h in entropy],
        "entropy": entropy,
        "temperature": [1 + 0.05 * (h - 0.2) for h in entropy],
    }
    return {
        "step": step, "row": row, "group": row // 2, "prompt": f"{step}+{row // 2}*2=", "tokens": tokens,
        "reward": float(correct), "correct": correct, "answer": "7",
        "terms": {name: [round(x, 6) for x in values] for name, values in terms.items()},
    }  # fmt: skip


def write_run(path: Path, steps: int = 60, trace: Sequence[Mapping[str, Any]] | None = None) -> Path:
    """A whole run directory; `trace` replaces its rollouts."""
    rng = random.Random(0)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG | {"train": {"steps": steps}}))
    (path / "objective.txt").write_text(OBJECTIVE)
    (path / "versions.json").write_text(json.dumps(VERSIONS))
    write_lines(path / "metrics.jsonl", [metrics_row(step, steps, rng) for step in range(1, steps + 1)])
    if trace is None:
        drawn = [1, *range(10, steps + 1, 10)]
        trace = [rollout(step, row, rng) for step in drawn for row in range(4)]
    write_lines(path / "trace.jsonl", trace)
    return path


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`make_run(name="run", **as_for_write_run)` -> the run directory."""
    return lambda name="run", **more: write_run(tmp_path / name, **more)


@pytest.fixture
def page() -> Callable[[Path], Node]:
    """`page(run)` -> the report of a run directory as a tree."""
    return lambda run: read_html(write_report(run).read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Node]:
    """One whole run of 60 steps and its page."""
    run = write_run(tmp_path_factory.mktemp("story") / "run")
    return run, read_html(write_report(run).read_text(encoding="utf-8"))


@pytest.fixture
def traced() -> Callable[..., dict[str, Any]]:
    """`traced(tokens, step=1, row=0, reward=1.0, group=0, **terms)` -> one line of trace.jsonl."""

    def make(tokens: Sequence[str], step: int = 1, row: int = 0, reward: float = 1.0, group: int = 0, **terms: Any):
        line = {"step": step, "row": row, "group": group, "prompt": "1+1=", "tokens": list(tokens)}
        return line | {"reward": reward, "correct": bool(reward), "answer": "2", "terms": terms}

    return make

"""Reads what a run left on disk: whole lines are taken, broken ones are counted and named, never guessed at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from ..base.errors import TokenPOError
from ..base.jsonl import whole_lines

Number = float | None
NOTE = "note/"  # begins the metrics that count the notes of the verifier
# The other metrics that an engine logs.
_LOGGED = """
    reward accuracy eval/accuracy eval/low eval/high entropy entropy_q10 entropy_q50 entropy_q90 length length_max
    eval/length ratio_mean ratio_min ratio_max clip_fraction clip_low_fraction clip_high_fraction kl grad_norm
    zero_advantage_groups effective_tokens discarded_groups truncated seconds_rollout seconds_update seconds_other
    loss lr temperature_mean eval/avg eval/avg_low eval/avg_high eval/k groups seconds_evaluation reward_std
    length_min equal_reward_groups skipped_updates eval/reward eval/reward_low eval/reward_high eval/avg_reward
    eval/avg_reward_low eval/avg_reward_high
"""
LOGGED = frozenset(_LOGGED.split())
# Where the engines keep the record of a run, below its directory: ours and verl's, TRL's trainer, TRL with a recipe.
PLACES = ("", "tokenpo", "trl/tokenpo")
# Held-out mean reward -> what it is equal to where every reward is 1 for a right and 0 for a wrong response: there the
# metrics leave it out.
REWARDS: Mapping[str, str] = {
    "eval/reward": "eval/accuracy",
    "eval/reward_low": "eval/low",
    "eval/reward_high": "eval/high",
    "eval/avg_reward": "eval/avg",
    "eval/avg_reward_low": "eval/avg_low",
    "eval/avg_reward_high": "eval/avg_high",
}
X = TypeVar("X")


@dataclass(frozen=True)
class Run:
    """A run directory: `metrics` is one dict per step, ascending; `notes` says what could not be read."""

    path: Path
    config: Mapping[str, Any]
    objective: str
    versions: Mapping[str, Any]
    metrics: tuple[Mapping[str, Number], ...]
    notes: tuple[str, ...]

    def series(self, name: str) -> list[tuple[float, Number]]:
        """(step, value) of every step that has this metric; None where it was not a finite number.

        A note of the verifier is written only where there is one: at the other steps that were judged it is 0.
        """
        note = name.startswith(NOTE)
        rows = [row for row in self.metrics if name in row or (note and row.get("accuracy") is not None)]
        return [(_step(row), row.get(name, 0.0)) for row in rows]

    @property
    def label(self) -> str:
        """The name of the directory that was given to `tokenpo train`."""
        parts = self.path.resolve().parts
        return parts[-3] if parts[-2:] == ("trl", "tokenpo") else parts[-1]

    @property
    def names(self) -> list[str]:
        """Every metric of the run, in the order in which it first appears."""
        return [name for name in dict.fromkeys(k for row in self.metrics for k in row) if name != "step"]


@dataclass(frozen=True)
class Rollout:
    """One drawn response: `tokens` are T strings, every list in `terms` has T numbers."""

    step: int
    row: int
    group: int | None
    prompt: str
    tokens: tuple[str, ...]
    reward: Number
    correct: bool | None
    answer: str
    terms: Mapping[str, tuple[Number, ...]]


@dataclass(frozen=True)
class Trace:
    """Where the whole rollouts lie in trace.jsonl, so that a long trace is never held in memory."""

    path: Path
    index: tuple[tuple[int, int], ...]  # (step, byte offset), in file order
    notes: tuple[str, ...]

    def load(self, offset: int) -> Rollout:
        with self.path.open("rb") as file:
            file.seek(offset)
            return _rollout(json.loads(file.readline()))


def read_run(path: Path | str) -> Run:
    """Reads everything of a run but its trace.

    Raises:
        TokenPOError: no such directory, or no metrics.jsonl with one whole line in it.
    """
    path = Path(path)
    if not path.is_dir():
        raise TokenPOError(f"{path} is not a directory: give the run directory that `tokenpo train` wrote")
    path = next((path / place for place in PLACES if (path / place / "metrics.jsonl").is_file()), path)
    log = path / "metrics.jsonl"
    if not log.is_file():
        raise TokenPOError(
            f"{path} holds no metrics.jsonl: give the run directory that `tokenpo train` wrote, "
            "or train again if that run stopped before its first step"
        )
    notes: list[str] = []
    by_step: dict[float, dict[str, Number]] = {}
    repeated = 0
    for line in whole_lines(log, _metrics_row, notes):
        row = line.value
        repeated += _step(row) in by_step
        by_step[_step(row)] = row
    if not by_step:
        cause = notes[0] if notes else "it is empty"
        raise TokenPOError(
            f"{log} holds no whole line with a step ({cause.rstrip('.')}): "
            "train again if the run stopped before its first step, else restore the file"
        )
    if repeated:
        notes.append(f"metrics.jsonl: {repeated} steps were logged twice (a resumed run); the later line counts.")
    metrics = tuple(with_rewards([by_step[step] for step in sorted(by_step)]))
    notes += _missing_steps([_step(row) for row in metrics])
    return Run(
        path=path,
        config=_json_file(path / "config.json", notes),
        objective=_text_file(path / "objective.txt", notes),
        versions=_json_file(path / "versions.json", notes),
        metrics=metrics,
        notes=tuple(notes),
    )


def read_trace(path: Path | str) -> Trace:
    """Indexes the whole rollouts of trace.jsonl; a missing file is an empty trace with a note."""
    path = Path(path) / "trace.jsonl"
    if not path.is_file():
        return Trace(path, (), ("trace.jsonl is missing: no tokens to show.",))
    notes: list[str] = []
    index = tuple((line.value.step, line.offset) for line in whole_lines(path, _rollout, notes))
    if not index:
        notes.append("trace.jsonl holds no whole rollout: no tokens to show.")
    return Trace(path, index, tuple(notes))


def with_rewards(lines: Sequence[Mapping[str, X]]) -> list[Mapping[str, X]]:
    """The lines of a run's metrics; if some tell a mean reward, it stands in all that evaluate.

    >>> with_rewards([{"eval/accuracy": 0.0}, {"lr": 1.0}, {"eval/accuracy": 0.5, "eval/reward": 0.7}])[0]
    {'eval/accuracy': 0.0, 'eval/reward': 0.0}
    """
    if not any("eval/reward" in line for line in lines):
        return list(lines)
    return [line if "eval/reward" in line else {**line, **_verdicts(line)} for line in lines]


def _verdicts(line: Mapping[str, X]) -> dict[str, X]:
    return {name: line[same] for name, same in REWARDS.items() if same in line}


def _metrics_row(value: Any) -> dict[str, Number]:
    if not isinstance(value, dict) or _number(value.get("step")) is None:
        raise ValueError("not an object with a step")
    return {str(k): _number(v) for k, v in value.items() if v is None or isinstance(v, (bool, int, float))}


def _rollout(value: Any) -> Rollout:
    if not isinstance(value, dict) or _number(value.get("step")) is None:
        raise ValueError("not an object with a step")
    tokens, terms = value.get("tokens"), value.get("terms", {})
    if not isinstance(tokens, list) or not all(isinstance(t, str) for t in tokens):
        raise ValueError("tokens is not a list of strings")
    if not isinstance(terms, dict) or not all(isinstance(v, list) for v in terms.values()):
        raise ValueError("terms is not an object of lists")
    for name, values in terms.items():
        if len(values) != len(tokens):
            raise ValueError(f"{name[:40]!r} has {len(values)} numbers for {len(tokens)} tokens")
    row, group, correct = _number(value.get("row")), _number(value.get("group")), value.get("correct")
    return Rollout(
        step=int(value["step"]),
        row=int(row or 0),
        group=None if group is None else int(group),
        prompt=_string(value.get("prompt")),
        tokens=tuple(tokens),
        reward=_number(value.get("reward")),
        correct=correct if isinstance(correct, bool) else None,
        answer=_string(value.get("answer")),
        terms={name: tuple(_number(x) for x in values) for name, values in terms.items()},
    )


def _string(value: Any) -> str:
    """A prompt is text, or chat messages, of which the reader wants the contents."""
    if isinstance(value, list) and all(isinstance(m, dict) and "content" in m for m in value):
        return "\n".join(f"{m.get('role', '')}: {m['content']}" for m in value)
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _number(value: Any) -> Number:
    """A finite float, or None. Beyond 1e±100 no axis is drawable: such numbers count as not finite, or as zero."""
    if not isinstance(value, (bool, int, float)):
        return None
    try:
        x = float(value)
    except OverflowError:
        return None
    if not abs(x) < 1e100:
        return None
    return x if abs(x) > 1e-100 else 0.0


def _step(row: Mapping[str, Number]) -> float:
    return row["step"] or 0.0


def _missing_steps(steps: list[float]) -> list[str]:
    """A note when the steps do not follow each other at the most common distance."""
    gaps = [b - a for a, b in pairwise(steps)]
    if not gaps:
        return []
    usual = max(set(gaps), key=gaps.count)
    holes = [f"{a:g}–{b:g}" for a, b in pairwise(steps) if b - a > usual]
    if not holes:
        return []
    more = f" and {len(holes) - 5} more" if len(holes) > 5 else ""
    return [f"metrics.jsonl: steps are missing between {', '.join(holes[:5])}{more}; the curves break there."]


def _json_file(path: Path, notes: list[str]) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        notes.append(f"{path.name} is missing.")
    except (ValueError, RecursionError, OSError):
        notes.append(f"{path.name} is not readable JSON; left out.")
    else:
        if isinstance(value, dict):
            return value
        notes.append(f"{path.name} is not a JSON object; left out.")
    return {}


def _text_file(path: Path, notes: list[str]) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        notes.append(f"{path.name} is missing.")
        return ""

"""Reads a run directory: whole lines are read, broken ones are counted and named, never repaired."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import TokenPOError
from ..base.files import json_object, read_text
from ..base.jsonl import parsed, whole_lines
from .metrics import NOTE, Metrics, Number, number, read_metrics
from .rollouts import PLACES


@dataclass(frozen=True)
class Run:
    """A run directory; `notes` names the parts that could not be read."""

    path: Path
    config: Mapping[str, Any]
    objective: str
    versions: Mapping[str, Any]
    metrics: Metrics
    notes: tuple[str, ...]

    def series(self, name: str) -> list[tuple[float, Number]]:
        """(step, value) at every step with this metric, None if not finite; 0 for a note that never occurs."""
        if name in self.metrics.series:
            return self.metrics.series[name]
        return [(x, 0.0) for x, y in self.series("accuracy") if y is not None] if name.startswith(NOTE) else []

    def total(self, name: str) -> float:
        """The sum over all steps; 0 if the metric is absent."""
        return sum(value or 0.0 for _, value in self.metrics.series.get(name, ()))

    @property
    def label(self) -> str:
        """The name of the directory that `tokenpo train` was given."""
        path = self.path.resolve()
        return path.parent.name if path.name in PLACES else path.name

    @property
    def names(self) -> list[str]:
        return [name for name in self.metrics.series if name != "step"]


@dataclass(frozen=True)
class Rollout:
    """One response of trace.jsonl: `tokens` are T strings, every list in `terms` has T numbers."""

    step: int
    row: int
    group: int | None
    prompt: Any  # as read, one text
    tokens: Sequence[str]
    reward: Number
    correct: bool | None
    answer: str | None
    terms: Mapping[str, Sequence[Number]]


@dataclass(frozen=True)
class Trace:
    """An index of trace.jsonl; a long trace is never held in memory."""

    path: Path
    index: tuple[tuple[int, int], ...]  # (step, byte offset), in file order
    notes: tuple[str, ...]

    def load(self, offset: int) -> Rollout:
        with self.path.open("rb") as file:
            file.seek(offset)
            return _rollout(parsed(file.readline()))


def read_run(path: Path | str) -> Run:
    """Reads a run except its trace."""
    path = Path(path)
    if not path.is_dir():
        raise TokenPOError(f"{path} is not a directory: give the run directory that `tokenpo train` wrote")
    path = next((path / place for place in PLACES if (path / place / "metrics.jsonl").is_file()), path)
    log = path / "metrics.jsonl"
    if not log.is_file():
        raise TokenPOError(f"{path} holds no metrics.jsonl: give the run directory that `tokenpo train` wrote")
    notes: list[str] = []
    metrics = read_metrics(log, notes)
    objective = path / "objective.txt"
    config = _json_file(path / "config.json", notes)
    notes += [] if objective.is_file() else ["objective.txt is missing."]
    return Run(
        path=path,
        config=config,
        objective=_text(objective),
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


def _rollout(value: Any) -> Rollout:
    if not isinstance(value, dict) or number(value.get("step")) is None:
        raise ValueError("not an object with a step")
    tokens, terms = value.get("tokens"), value.get("terms", {})
    if not isinstance(tokens, list) or not all(isinstance(text, str) for text in tokens):
        raise ValueError("tokens are not texts")
    if not isinstance(terms, dict) or any(not isinstance(x, list) or len(x) != len(tokens) for x in terms.values()):
        raise ValueError("a term has not one number for each token")
    row, group, correct = number(value.get("row")), number(value.get("group")), value.get("correct")
    return Rollout(
        step=int(value["step"]),
        row=int(row or 0),
        group=None if group is None else int(group),
        prompt=in_words(value.get("prompt")),
        tokens=tuple(tokens),
        reward=number(value.get("reward")),
        correct=correct if isinstance(correct, bool) else None,
        answer=in_words(value.get("answer")),
        terms={name: tuple(number(x) for x in values) for name, values in terms.items()},
    )


def in_words(value: Any) -> str:
    """A prompt as one text, chat messages with their roles."""
    if isinstance(value, list) and all(isinstance(m, dict) and "content" in m for m in value):
        return "\n".join(f"{m.get('role', '')}: {m['content']}" for m in value)
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError):
        return ""


def _json_file(path: Path, notes: list[str]) -> Mapping[str, Any]:
    found = json_object(path)
    if not found:
        notes.append(f"{path.name} is {'not a readable JSON object; left out' if path.exists() else 'missing'}.")
    return found

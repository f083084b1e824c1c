"""What the page says first: what was run, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from ...base.text import duration, number
from ...methods import METHODS, paper
from ...runs.read import Number, Run
from ..page.text import paragraph, percent, visible


@dataclass(frozen=True)
class Outcome:
    """Accuracy at one moment with its interval, where there is one; all fractions."""

    when: str
    value: float
    low: Number
    high: Number

    @property
    def text(self) -> str:
        return percent(self.value)

    @property
    def interval(self) -> str:
        return "" if self.low is None or self.high is None else f"{100 * self.low:.3g}–{percent(self.high)}"


@dataclass(frozen=True)
class Head:
    """`title` names the run; `facts` are (name, value) pairs; `outcomes` are before and after, held-out if measured."""

    title: str
    facts: tuple[tuple[str, str], ...]
    outcomes: tuple[Outcome, ...]
    held_out: bool
    picture: Markup
    objective: str
    config: str
    versions: tuple[tuple[str, str], ...]


def head(run: Run) -> Head:
    outcomes, held_out = _outcomes(run)
    method, task = _find(run.config, "method.name", "method"), _find(run.config, "task.name", "task")
    return Head(
        title=f"{_short(method) or 'A run'} on {_short(task) or 'an unnamed task'}",
        facts=tuple((name, text) for name, text in _facts(run, method, task) if text),
        outcomes=outcomes,
        held_out=held_out,
        picture=_picture(outcomes),
        objective=paragraph(run.objective.strip("\n"), limit=20_000),
        config=paragraph(json.dumps(run.config, indent=2, ensure_ascii=False), limit=20_000),
        versions=tuple((_short(k), _short(v)) for k, v in list(run.versions.items())[:40]),
    )


def _facts(run: Run, method: Any, task: Any) -> list[tuple[str, str]]:
    steps = [int(x) for x, _ in run.series("step") if x > 0]
    planned = _find(run.config, "train.steps", "steps")
    done = f"{len(steps):,}" if planned in (None, len(steps)) else f"{len(steps):,} of {_short(planned)}"
    seconds = [y or 0.0 for name in run.names if name.startswith("seconds_") for _, y in run.series(name)]
    return [
        ("method", _short(method)),
        ("model", _short(_find(run.config, "model.path", "model.name", "model"))),
        ("task", _short(task)),
        ("seed", _short(_find(run.config, "seed", "train.seed"))),
        ("steps", done),
        ("time", duration(sum(seconds)) if seconds else ""),
        ("entropy, nats", _change(run, "entropy")),
        ("length, tokens", _change(run, "length")),
        ("paper", _paper(method)),
    ]


def _change(run: Run, name: str) -> str:
    values = [y for _, y in run.series(name) if y is not None]
    return f"{number(values[0])} → {number(values[-1])}" if values else ""


def _paper(method: Any) -> str:
    """Title, reference and provenance of a method of the table; nothing for any other name."""
    if not isinstance(method, str) or method not in METHODS:
        return ""
    source = paper(method)
    return f"{source.title}, {source.reference} ({source.provenance})"


def _find(config: Mapping[str, Any], *paths: str) -> Any:
    """The first of these dotted paths that leads to a plain value."""
    for path in paths:
        value: Any = config
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, (str, int, float)):
            return value
    return None


def _short(value: Any) -> str:
    return "" if value is None else visible(str(value), limit=120)


def _outcomes(run: Run) -> tuple[tuple[Outcome, ...], bool]:
    """First and last held-out accuracy, greedy or else sampled; without any, that of the training rollouts."""
    for name, below, above in (
        ("eval/accuracy", "eval/low", "eval/high"),
        ("eval/avg", "eval/avg_low", "eval/avg_high"),
        ("accuracy", "", ""),
    ):
        points = [(x, y) for x, y in run.series(name) if y is not None]
        if points:
            low, high = (dict(run.series(end)) for end in (below, above))
            ends = dict.fromkeys([points[0], points[-1]])
            outcomes = tuple(Outcome(f"step {number(x)}", y, low.get(x), high.get(x)) for x, y in ends)
            return outcomes, name.startswith("eval/")
    return (), False


def _picture(outcomes: tuple[Outcome, ...]) -> Markup:
    """Dots with their intervals on a line from 0 to 100 %."""
    if not outcomes:
        return Markup("")

    def px(share: float) -> float:
        return 14 + 372 * min(max(share, 0.0), 1.0)

    height = 30 + 22 * len(outcomes)
    name = "; ".join(f"{o.when}: {o.text} {o.interval}" for o in outcomes)
    parts = [f'<svg class="span" viewBox="0 0 400 {height}" role="img" aria-label="{escape("Accuracy, " + name)}">']
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path class="grid" d="M{px(tick):.1f} 4V{height - 20}"/>')
        parts.append(f'<text class="tick x" x="{px(tick):.1f}" y="{height - 6}">{100 * tick:.0f} %</text>')
    for i, o in enumerate(outcomes):
        y = 18 + 22 * i
        if o.low is not None and o.high is not None:
            parts.append(f'<path class="whisker c{i}" d="M{px(o.low):.1f} {y}H{px(o.high):.1f}"/>')
        parts.append(f'<circle class="dot c{i}" cx="{px(o.value):.1f}" cy="{y}" r="5"/>')
    return Markup("".join(parts) + "</svg>")

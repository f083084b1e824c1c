"""Show the progress of a run: a live table on a terminal, plain lines everywhere else."""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..base.terminal import Console
from ..base.text import duration, number
from ..train.run.step import View

# (metric, name), as docs/metrics.md explains them; the first six also make a plain line.
Row = tuple[str, str]
ROWS: tuple[Row, ...] = (
    ("reward", "reward"),
    ("accuracy", "accuracy"),
    ("entropy", "entropy"),
    ("clip_fraction", "clipped"),
    ("kl", "KL moved"),
    ("zero_advantage_groups", "zero-advantage groups"),
    ("effective_tokens", "effective tokens"),
    ("discarded_groups", "discarded groups"),
    ("length", "length"),
    ("grad_norm", "gradient norm"),
)
SOMETIMES = (("explained_variance", "explained variance"), ("teacher_kl", "KL from teacher"))
BARS = "▁▂▃▄▅▆▇█"
RECENT = 10
NAME, NUMBER, COURSE = max(len(row[1]) for row in ROWS), len("-0.000123"), 32  # characters of the columns


def make_view(stream: TextIO) -> View:
    """Live on a terminal that can redraw, else plain."""
    console = Console(stream)
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(stream)


class PlainView(View):
    """One line a step, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pace = Pace()

    def say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def step(self, metrics: Mapping[str, float], total: int) -> None:
        shown = "  ".join(f"{name} {_padded(metrics.get(key))}" for key, name in _rows(ROWS[:6], metrics))
        pace = self._pace.text(metrics, total)
        self.say(f"step {int(metrics['step'])}/{total}  {shown}  {_evaluation(metrics)}{split(metrics)}  {pace}")


class LiveView(View):
    """A table that is redrawn after each step: current value, mean and course of the last steps."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._history: deque[Mapping[str, float]] = deque(maxlen=COURSE)
        self._pace = Pace()

    def start(self, about: Sequence[str], directory: Path, step: int, notes: Sequence[str]) -> None:
        super().start(about, directory, step, notes)
        self._live = Live(Text("sampling the first batch", style="dim"), console=self._console, auto_refresh=False)
        self._live.start()

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def step(self, metrics: Mapping[str, float], total: int) -> None:
        self._history.append(metrics)
        if evaluation := _evaluation(metrics):
            self.say(f"step {int(metrics['step'])}: {evaluation.strip()}")
        if self._live is not None:
            self._live.update(self._table(metrics, total), refresh=True)

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self, metrics: Mapping[str, float], total: int) -> Group:
        # A column's line and the spaces around it are three characters.
        width = min(COURSE, self._console.width - 1 - NAME - 2 * NUMBER - 4 * 3)
        table = Table(title=f"step {int(metrics['step'])} of {total}", title_justify="left")
        table.add_column("", no_wrap=True, width=NAME)
        for name in ("now", f"last {RECENT}"):
            table.add_column(name, justify="right", no_wrap=True, width=NUMBER)
        if width >= len("course"):
            table.add_column("course", no_wrap=True, width=width)
        for key, name in _rows(ROWS, metrics):
            course = [row.get(key, math.nan) for row in self._history]
            recent = [x for x in course[-RECENT:] if math.isfinite(x)]
            mean = sum(recent) / len(recent) if recent else None
            cells = [name, _padded(metrics.get(key)), _padded(mean), sparkline(course[-width:])]
            table.add_row(*cells[: len(table.columns)])
        return Group(table, Text(f"{self._pace.text(metrics, total)}; {split(metrics)}", style="dim"))


def _rows(rows: tuple[Row, ...], metrics: Mapping[str, float]) -> tuple[Row, ...]:
    """The rows, and those of a critic and of a teacher if the run has one."""
    return (*rows, *(row for row in SOMETIMES if row[0] in metrics))


class Pace:
    """Time spent, and time left by the mean of the last steps; the first step and evaluations don't count in it."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._begun, self._first = time.monotonic(), True

    def text(self, metrics: Mapping[str, float], total: int) -> str:
        """The text after the step of these metrics."""
        seconds = sum(value for key, value in metrics.items() if key.startswith("seconds_"))
        if not self._first:
            self._seconds.append(seconds - metrics.get("seconds_evaluation", 0.0))
        self._first = False
        steps, spent = total - int(metrics["step"]), duration(time.monotonic() - self._begun)
        if not steps or not self._seconds:
            return f"{spent} so far" if steps else f"{spent} in all"
        return f"{spent} so far, about {duration(steps * sum(self._seconds) / len(self._seconds))} left"


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars, scaled from the smallest to the largest.

    >>> sparkline([0, 1, 2, 3])
    '▁▃▆█'
    """
    known = [x for x in values if math.isfinite(x)]
    low = min(known, default=0.0)
    span = max(known, default=0.0) - low or 1.0
    return "".join(BARS[round((x - low) / span * (len(BARS) - 1))] if math.isfinite(x) else " " for x in values)


def split(metrics: Mapping[str, float]) -> str:
    """The step's seconds and the percentages of its parts; parts below 0.5 % are left out."""
    parts = {key[8:]: value for key, value in metrics.items() if key.startswith("seconds_")}
    whole = sum(parts.values())
    shares = [f"{name} {100 * seconds / whole:.0f} %" for name, seconds in parts.items() if seconds > whole / 200]
    return f"this step {whole:.2f} s ({', '.join(shares)})"


_padded = partial(number, padded=True)  # with trailing zeros, so that successive lines keep their width


def _evaluation(metrics: Mapping[str, float]) -> str:
    if "eval/accuracy" not in metrics:
        return ""
    low, high = _padded(metrics["eval/low"]), _padded(metrics["eval/high"])
    text = f"held-out accuracy {_padded(metrics['eval/accuracy'])} ({low} to {high})  "
    return text + (f"held-out reward {_padded(metrics['eval/reward'])}  " if "eval/reward" in metrics else "")

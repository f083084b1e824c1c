"""Show the progress of a run: a line for each step."""

import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TextIO

from ..base.text import duration, number
from ..train.run.step import View

# (metric, name) of a line, as docs/metrics.md explains them; a critic and a teacher have the last two.
SHOWN = (
    ("reward", "reward"),
    ("accuracy", "accuracy"),
    ("entropy", "entropy"),
    ("clip_fraction", "clipped"),
    ("kl", "KL moved"),
    ("zero_advantage_groups", "idle groups"),
    ("explained_variance", "explained variance"),
    ("teacher_kl", "KL from teacher"),
)
RECENT = 10
_padded = partial(number, padded=True)  # with trailing zeros, so that successive lines keep their width


class Lines(View):
    """Writes a line for each step, and each other text as it comes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._begun, self._first = time.monotonic(), True

    def say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def step(self, metrics: Mapping[str, float], total: int) -> None:
        once = [pair for pair in SHOWN[:6] if pair[0] != "accuracy" or metrics[pair[0]] != metrics["reward"]]
        known = [f"{name} {_padded(metrics.get(key))}" for key, name in once]
        known += [f"{name} {_padded(metrics[key])}" for key, name in SHOWN[6:] if key in metrics]
        self.say(f"step {int(metrics['step'])}/{total}  {'  '.join(known)}  {self._pace(metrics, total)}")
        if "eval/accuracy" in metrics:
            low, high = _padded(metrics["eval/low"]), _padded(metrics["eval/high"])
            reward = f"  reward {_padded(metrics['eval/reward'])}" if "eval/reward" in metrics else ""
            self.say(f"  held-out accuracy {_padded(metrics['eval/accuracy'])} ({low} to {high}){reward}")

    def _pace(self, metrics: Mapping[str, float], total: int) -> str:
        """The time spent, and the time left by the mean of the last steps without evaluations."""
        seconds = sum(value for key, value in metrics.items() if key.startswith("seconds_"))
        if not self._first:  # it takes longer than the others
            self._seconds.append(seconds - metrics.get("seconds_evaluation", 0.0))
        self._first = False
        steps, spent = total - int(metrics["step"]), duration(time.monotonic() - self._begun)
        if not steps or not self._seconds:
            return f"{spent} {'so far' if steps else 'in all'}"
        return f"{spent}, about {duration(steps * sum(self._seconds) / len(self._seconds))} left"

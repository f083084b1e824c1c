"""Accuracy on held-out problems: greedy, with a Wilson interval, and averaged over k samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..intervals import interval, wilson
from ..lm import Sampling
from ..responses import Draw, draw
from ..sampling.seeds import keyed_seed
from ..tasks import held_out
from .engine import Engine


@dataclass(frozen=True)
class Evaluation:
    """Results on held-out problems.

    Args:
        problems: how many.
        accuracy: fraction solved greedily, in the 95 % interval low..high.
        length: mean tokens of the greedy responses.
        k: samples per problem; 0: none were drawn.
        average: mean accuracy over problems and samples (avg@k), in the 95 % interval average_low..average_high, which
            takes the problems as the sample (`intervals.interval`).
    """

    problems: int
    accuracy: float
    low: float
    high: float
    length: float
    k: int
    average: float
    average_low: float
    average_high: float

    def metrics(self) -> dict[str, float]:
        """For the step's line of metrics."""
        greedy = {"accuracy": self.accuracy, "low": self.low, "high": self.high, "length": self.length}
        sampled = {"avg": self.average, "avg_low": self.average_low, "avg_high": self.average_high, "k": self.k}
        return {f"eval/{name}": value for name, value in (greedy | (sampled if self.k else {})).items()}

    def __str__(self) -> str:
        text = f"greedy accuracy {self.accuracy:.3f} (95 % {self.low:.3f} to {self.high:.3f})"
        if self.k:
            text += f", avg@{self.k} {self.average:.3f} ({self.average_low:.3f} to {self.average_high:.3f})"
        return f"{text}, mean length {self.length:.1f}, {self.problems} held-out problems"


def evaluate(engine: Engine) -> Evaluation:
    """The current weights on the first `evaluate.problems` test problems; the same random numbers every time."""
    options = engine.config.evaluate
    greedy = list(_draws(engine, 1, 0.0))
    right = [float(score.correct) for piece in greedy for score in piece.scores]
    tokens = sum(int(piece.mask.sum()) for piece in greedy)
    rates: list[float] = []
    if options.samples:
        for piece in _draws(engine, options.samples, engine.config.rollout.temperature):
            rates += piece.correct().double().view(len(piece.problems), options.samples).mean(1).tolist()
    low, high = wilson(sum(right), len(right))
    # As `tokenpo eval` finds it from the same samples and seed; it resamples with a generator of its own.
    ends = interval(rates, engine.config.seed)
    return Evaluation(
        problems=len(right),
        accuracy=sum(right) / len(right),
        low=low,
        high=high,
        length=tokens / len(right),
        k=options.samples,
        average=math.fsum(rates) / len(rates) if rates else math.nan,
        average_low=ends.low,
        average_high=ends.high,
    )


def _draws(engine: Engine, samples: int, temperature: float) -> Iterator[Draw]:
    config = engine.config
    seed = keyed_seed(config.seed, "evaluation")
    sampling = Sampling(config.rollout.max_new_tokens, temperature, seed)
    at_once = max(1, config.evaluate.rows // samples)
    problems = held_out(engine.task, config.evaluate.problems)
    for start in range(0, problems, at_once):
        count = min(at_once, problems - start)
        yield draw(engine.lm, engine.task, "test", start, count, samples, sampling, autocast=config.train.autocast)

"""Accuracy on held-out problems: greedy, with a Wilson interval, and averaged over k samples; rewards where graded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..base.intervals import interval, spread, wilson
from ..core.seeds import keyed_seed
from ..models import LanguageModel, Sampling
from ..recipe.config import Config
from ..tasks import Score, Task, held_out
from .rollouts.draw import Draw, draw

# (first held-out problem, how many, responses to each, how) -> responses.
Draws = Callable[[int, int, int, Sampling], Draw]


@dataclass(frozen=True)
class MeanReward:
    """Over problems, in the 95 % interval low..high; NaN where the problems' rewards all agree (`intervals.spread`)."""

    value: float
    low: float
    high: float

    @staticmethod
    def of(scores: Sequence[Score], each: int, seed: int) -> MeanReward:
        """`each` consecutive scores are of one problem."""
        firsts = range(0, len(scores), each)
        means = [math.fsum(score.reward for score in scores[i : i + each]) / each for i in firsts]
        ends = spread(means, seed)
        return MeanReward(math.fsum(means) / len(means), ends.low, ends.high)

    def metrics(self, name: str) -> dict[str, float]:
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def __str__(self) -> str:
        ends = "" if math.isnan(self.low) else f" ({self.low:.3f} to {self.high:.3f})"
        return f"{self.value:.3f}{ends}"


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
        reward: mean reward of the greedy responses; None where all rewards are 1 for a right and 0 for a wrong one.
        average_reward: of the samples; None there, and where none were drawn.
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
    reward: MeanReward | None = None
    average_reward: MeanReward | None = None

    def metrics(self) -> dict[str, float]:
        """For the step's line of metrics."""
        greedy = {"accuracy": self.accuracy, "low": self.low, "high": self.high, "length": self.length}
        sampled = {"avg": self.average, "avg_low": self.average_low, "avg_high": self.average_high, "k": self.k}
        rewards = {"reward": self.reward, "avg_reward": self.average_reward}
        graded = {key: x for name, mean in rewards.items() if mean is not None for key, x in mean.metrics(name).items()}
        return {f"eval/{name}": value for name, value in (greedy | (sampled if self.k else {}) | graded).items()}

    def __str__(self) -> str:
        text = f"greedy accuracy {self.accuracy:.3f} (95 % {self.low:.3f} to {self.high:.3f})"
        if self.reward is not None:
            text += f", greedy reward {self.reward}"
        if self.k:
            text += f", avg@{self.k} {self.average:.3f} ({self.average_low:.3f} to {self.average_high:.3f})"
        if self.average_reward is not None:
            text += f", sampled reward {self.average_reward}"
        return f"{text}, mean length {self.length:.1f}, {self.problems} held-out problems"


def evaluate(config: Config, lm: LanguageModel, task: Task) -> Evaluation:
    """The weights as they are on the first `evaluate.problems` test problems; the same random numbers every time."""

    def draws(start: int, count: int, samples: int, sampling: Sampling) -> Draw:
        return draw(lm, task, "test", start, count, samples, sampling, autocast=config.train.autocast)

    return evaluated(config, task, draws)


def evaluated(config: Config, task: Task, draws: Draws) -> Evaluation:
    """The same of whatever draws the responses."""
    options = config.evaluate
    greedy = list(_draws(config, draws, task, 1, 0.0))
    scores = [score for piece in greedy for score in piece.scores]
    right = [float(score.correct) for score in scores]
    tokens = sum(int(piece.mask.sum()) for piece in greedy)
    rates: list[float] = []
    sampled: list[Score] = []
    if options.samples:
        for piece in _draws(config, draws, task, options.samples, config.rollout.temperature):
            rates += piece.correct().double().view(len(piece.problems), options.samples).mean(1).tolist()
            sampled += piece.scores
    low, high = wilson(sum(right), len(right))
    # As `tokenpo eval` finds it from the same samples and seed; it resamples with a generator of its own.
    seed = config.seed
    ends = interval(rates)
    graded = any(score.reward != score.correct for score in (*scores, *sampled))
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
        reward=MeanReward.of(scores, 1, seed) if graded else None,
        average_reward=MeanReward.of(sampled, options.samples, seed) if graded and sampled else None,
    )


def _draws(config: Config, draws: Draws, task: Task, samples: int, temperature: float) -> Iterator[Draw]:
    seed = keyed_seed(config.seed, "evaluation")
    sampling = Sampling(config.rollout.max_new_tokens, temperature, seed)
    at_once = max(1, config.evaluate.rows // samples)
    problems = held_out(task, config.evaluate.problems)
    for start in range(0, problems, at_once):
        count = min(at_once, problems - start)
        yield draws(start, count, samples, sampling)

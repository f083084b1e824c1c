"""Accuracy on held-out problems: greedy with a Wilson interval, and the mean over k samples; rewards if graded."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...base.intervals import Mean, mean_of_numbers, mean_of_shares
from ...core.seeds import keyed_seed
from ..models import Sampling
from ..recipe.config import Config
from ..tasks import Score, Task, held_out
from .rollout import Draw


@dataclass(frozen=True)
class Evaluation:
    """Results on held-out problems.

    Args:
        problems: number of problems.
        greedy: accuracy of the greedy responses.
        length: mean tokens of the greedy responses.
        k: samples per problem; 0: none were drawn.
        sampled: accuracy over problems and samples (avg@k); its interval is over problems.
        reward: mean reward of the greedy responses; None if every reward is 1 for a right and 0 for a wrong response.
        sampled_reward: mean reward of the samples; None likewise.
    """

    problems: int
    greedy: Mean
    length: float
    k: int
    sampled: Mean | None = None
    reward: Mean | None = None
    sampled_reward: Mean | None = None

    def metrics(self) -> dict[str, float]:
        """The results as metrics of a step, names beginning with eval/."""
        means = {"avg": self.sampled, "reward": self.reward, "avg_reward": self.sampled_reward}
        metrics = {"accuracy": self.greedy.value, "low": self.greedy.low, "high": self.greedy.high}
        metrics["length"] = self.length
        for name, mean in means.items():
            if mean is not None:
                metrics |= {name: mean.value, f"{name}_low": mean.low, f"{name}_high": mean.high}
            if name == "avg" and self.k:
                metrics["k"] = self.k
        return {f"eval/{name}": value for name, value in metrics.items()}

    def __str__(self) -> str:
        parts = [f"greedy accuracy {self.greedy.value:.3f} (95 % {self.greedy.low:.3f} to {self.greedy.high:.3f})"]
        means = {"greedy reward": self.reward, f"avg@{self.k}": self.sampled, "sampled reward": self.sampled_reward}
        parts += [f"{name} {mean}" for name, mean in means.items() if mean is not None]
        return ", ".join([*parts, f"mean length {self.length:.1f}", f"{self.problems} held-out problems"])


def evaluate(config: Config, task: Task, draws: Callable[[int, int, int, Sampling], Draw]) -> Evaluation:
    """Evaluates on the first test problems, with the same random numbers every time, as `tokenpo eval` does.

    Args:
        draws: (first problem, number of problems, responses to each, sampling) -> responses.
    """
    k, options = config.evaluate.samples, config.evaluate
    problems = held_out(task, options.problems)

    def pieces(samples: int, temperature: float) -> Iterator[Draw]:
        seed, rollout = keyed_seed(config.seed, "evaluation"), config.rollout
        sampling = Sampling(rollout.max_new_tokens, temperature, seed, rollout.cut)
        at_once = max(1, options.rows // samples)
        for start in range(0, problems, at_once):
            yield draws(start, min(at_once, problems - start), samples, sampling)

    greedy = list(pieces(1, 0.0))
    scores = [score for piece in greedy for score in piece.scores]
    rates: list[float] = []
    sampled: list[Score] = []
    for piece in pieces(k, config.rollout.temperature) if k else ():
        rates += piece.correct().double().view(len(piece.problems), k).mean(1).tolist()
        sampled += piece.scores
    graded = any(score.reward != score.correct for score in (*scores, *sampled))
    return Evaluation(
        problems=len(scores),
        greedy=mean_of_shares([float(score.correct) for score in scores]),
        length=sum(int(piece.mask.sum()) for piece in greedy) / len(scores),
        k=k,
        sampled=mean_of_shares(rates) if k else None,
        reward=_mean_reward(scores, 1, config.seed) if graded else None,
        sampled_reward=_mean_reward(sampled, k, config.seed) if graded and k else None,
    )


def _mean_reward(scores: Sequence[Score], each: int, seed: int) -> Mean:
    """Mean reward over problems; `each` consecutive scores belong to one problem."""
    firsts = range(0, len(scores), each)
    means = [math.fsum(score.reward for score in scores[i : i + each]) / each for i in firsts]
    return mean_of_numbers(means, seed)

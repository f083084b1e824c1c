"""Responses to problems: prompt, sample, verify. What training and evaluation share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError
from ..models import LanguageModel, Sampling, require_room, sample
from ..models.precision import precision
from ..models.token_draw import TemperatureRule
from . import Problem, Score, Split, Task


@dataclass(frozen=True)
class Draw:
    """Responses to some problems; row = position in `problems` x group_size + g.

    Args:
        start: position of the first problem in the task's order.
        prompts: token ids of each prompt.
        token_ids, mask, logprob, entropy, temperature, rollout_logprob: [N, T] as the sampler recorded them.
        base: temperature at which logprob and entropy are taken.
        finished: [N] bool, EOS was reached.
    """

    start: int
    problems: list[Problem]
    prompts: list[list[int]]
    token_ids: Tensor
    mask: Tensor
    logprob: Tensor
    entropy: Tensor
    temperature: Tensor
    rollout_logprob: Tensor
    base: float
    finished: Tensor
    completions: list[str]
    scores: list[Score]

    @property
    def group_size(self) -> int:
        return len(self.scores) // len(self.problems)

    def group(self) -> Tensor:
        """[N] int, the place in `problems`."""
        return torch.arange(len(self.problems), device=self.mask.device).repeat_interleave(self.group_size)

    def reward(self) -> Tensor:
        """[N] float32."""
        return torch.tensor([score.reward for score in self.scores], dtype=torch.float32)

    def correct(self) -> Tensor:
        """[N] float32, 1 where the answer is right."""
        return torch.tensor([float(score.correct) for score in self.scores])


def draw(
    lm: LanguageModel,
    task: Task,
    split: Split,
    start: int,
    count: int,
    group_size: int,
    sampling: Sampling,
    *,
    autocast: bool = False,
    rule: TemperatureRule | None = None,
) -> Draw:
    """Samples and verifies `group_size` responses to each of the `count` problems from position `start` on.

    A problem's position is the key of its randomness, so it gets the same responses in whatever batch it is sampled.
    """
    problems = task.problems(split, start, count)
    names = [problem.place or f"{split} problem {start + place}" for place, problem in enumerate(problems)]
    prompts = [_encoded(lm, problem, name, sampling) for problem, name in zip(problems, names, strict=True)]
    with precision(lm.device, autocast):
        streams = range(start, start + count)
        out = sample(lm, prompts, group_size, sampling, streams=streams, rule=rule)
    token_ids = [row[kept].tolist() for row, kept in zip(out.token_ids.cpu(), out.mask.cpu(), strict=True)]
    completions = [lm.decode(without_eos(ids, lm.eos_ids)) for ids in token_ids]
    repeated = [problem for problem in problems for _ in range(group_size)]

    def name(row: int) -> str:
        return f"response {row % group_size} to problem {start + row // group_size}"

    scores = scored(task, repeated, completions, token_ids, name)
    return Draw(
        start=start,
        problems=problems,
        prompts=prompts,
        token_ids=out.token_ids,
        mask=out.mask,
        logprob=out.logprob,
        entropy=out.entropy,
        temperature=out.temperature,
        rollout_logprob=out.rollout_logprob,
        base=sampling.temperature or 1.0,
        finished=out.finished,
        completions=completions,
        scores=scores,
    )


def _encoded(lm: LanguageModel, problem: Problem, name: str, sampling: Sampling) -> list[int]:
    try:
        ids = lm.encode(problem.prompt)
        require_room(lm, ids, sampling)
    except TokenPOError as error:
        raise TokenPOError(f"{name}: {error}") from error
    return ids


def scored(
    task: Task,
    problems: list[Problem],
    completions: list[str],
    token_ids: list[list[int]],
    name: Callable[[int], str],
) -> list[Score]:
    """The scores of completions, one for each of `problems`.

    Args:
        name: of a row, for messages.

    Raises:
        TokenPOError: the task did not give one score for each.
        NotFinite: a reward is not finite.
    """
    scores = task.score(problems, completions, token_ids)
    if len(scores) != len(problems):
        raise TokenPOError(
            f"task {task.name!r} gave {len(scores)} scores for {len(problems)} responses: return one for each"
        )
    largest = torch.finfo(torch.float32).max  # above it a reward would become an infinity
    bad = next((row for row, score in enumerate(scores) if not abs(score.reward) <= largest), None)
    if bad is not None:
        raise NotFinite(
            f"task {task.name!r} gave the reward {scores[bad].reward} for {name(bad)}: mend its verifier", bad
        )
    return scores


def without_eos(ids: list[int], eos: Sequence[int]) -> list[int]:
    return ids[:-1] if ids and ids[-1] in eos else ids

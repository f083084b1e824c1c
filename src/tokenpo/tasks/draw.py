"""Responses to problems: prompt, sample, verify. What training and evaluation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError
from ..models import LanguageModel, Sampling, require_room, sample
from ..models.precision import precision
from ..models.token_draw import TemperatureRule
from . import Problem, Score, Split, Task, ToolTask


@dataclass(frozen=True)
class Draw:
    """Responses to some problems; row = position in `problems` x group_size + g.

    Args:
        start: position of the first problem in the task's order.
        prompts: token ids of each prompt.
        token_ids, mask, logprob, entropy, temperature, rollout_logprob: [N, T] as the sampler recorded them. What a
            tool wrote stands in the tokens and in the completions, outside the mask.
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
        repeated = [problem for problem in problems for _ in range(group_size)]
        tool = Called(lm, task, repeated) if isinstance(task, ToolTask) else None
        out = sample(lm, prompts, group_size, sampling, streams=streams, rule=rule, tool=tool)
    length = (out.mask * torch.arange(1, out.mask.shape[1] + 1, device=out.mask.device)).amax(1)
    token_ids = [row[:size] for row, size in zip(out.token_ids.tolist(), length.tolist(), strict=True)]
    completions = [lm.decode(_without_eos(ids, lm.eos_ids)) for ids in token_ids]
    scores = task.score(repeated, completions, token_ids)
    _check(task, scores, len(repeated), start, group_size)
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


class Called:
    """A task's tool, as the sampler asks it.

    Args:
        problems: that each row answers.
    """

    def __init__(self, lm: LanguageModel, task: ToolTask, problems: Sequence[Problem]) -> None:
        self._lm, self._task, self._problems = lm, task, problems
        self.ends = lm.tokens_ending(task.calls)

    def __call__(self, row: int, token_ids: Sequence[int]) -> Sequence[int]:
        answer = self._task.reply(self._problems[row], self._lm.decode(token_ids))
        return [] if not answer else self._lm.inserted(answer)


def _encoded(lm: LanguageModel, problem: Problem, name: str, sampling: Sampling) -> list[int]:
    try:
        ids = lm.encode(problem.prompt)
        require_room(lm, ids, sampling)
    except TokenPOError as error:
        raise TokenPOError(f"{name}: {error}") from error
    return ids


def _check(task: Task, scores: Sequence[Score], expected: int, start: int, group_size: int) -> None:
    """Raises where a task did not give one finite reward per response."""
    if len(scores) != expected:
        raise TokenPOError(
            f"task {task.name!r} gave {len(scores)} scores for {expected} responses: return one for each"
        )
    largest = torch.finfo(torch.float32).max  # above it a reward would become an infinity
    bad = next((row for row, score in enumerate(scores) if not abs(score.reward) <= largest), None)
    if bad is not None:
        problem, response = start + bad // group_size, bad % group_size
        raise NotFinite(
            f"task {task.name!r} gave the reward {scores[bad].reward} for response {response} to problem {problem}: "
            "mend its verifier",
            bad,
        )


def _without_eos(ids: list[int], eos: Sequence[int]) -> list[int]:
    return ids[:-1] if ids and ids[-1] in eos else ids

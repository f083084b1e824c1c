"""Responses to problems: prompt, sample, verify; shared by training and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...base.errors import NotFinite, TokenPOError
from ...core.request_temperature import TemperatureRule
from ..models import LanguageModel, Samples, Sampling, require_room, sample
from ..models.device import precision
from ..models.vocabulary import Tokenized
from ..tasks import Problem, Score, Split, Task, ToolTask

_END = 16  # tokens

Prompt = str | list[dict[str, Any]]  # a text, or chat messages


@dataclass(frozen=True)
class Draw(Samples):
    """Verified samples; row = position in `problems` x group_size + g.

    Args:
        start: position of the first problem in the task's order.
        prompts: token ids of each prompt.
        base: temperature of logprob and entropy.
        completions: the texts, with a tool's answers.
        asked: the prompts as texts or messages, if they differ from the problems' own.
    """

    start: int
    problems: list[Problem]
    prompts: list[list[int]]
    base: float
    completions: list[str]
    scores: list[Score]
    asked: list[Prompt] | None = None

    def question(self, group: int) -> Prompt:
        """The prompt of a group as text or messages."""
        return self.problems[group].prompt if self.asked is None else self.asked[group]

    @property
    def group_size(self) -> int:
        return len(self.scores) // len(self.problems)

    def reward(self) -> Tensor:
        """[N] float32."""
        return torch.tensor([score.reward for score in self.scores], dtype=torch.float32)

    def correct(self) -> Tensor:
        """[N] float32, 1 where the answer is right."""
        return torch.tensor([float(score.correct) for score in self.scores])


def draw(
    lm: LanguageModel, task: Task, split: Split, start: int, count: int, group_size: int, sampling: Sampling, *,
    autocast: bool = False, rule: TemperatureRule | None = None,
) -> Draw:  # fmt: skip
    """Samples and verifies `group_size` responses to each of the `count` problems from position `start` on.

    A problem's position keys its random numbers, so it gets the same responses in every batch.
    """
    problems, prompts = posed(lm, task, split, start, count, lambda ids: require_room(lm, ids, sampling))
    return answered(lm, task, start, problems, prompts, group_size, sampling, autocast=autocast, rule=rule)


def answered(
    lm: LanguageModel, task: Task, start: int, problems: list[Problem], prompts: list[list[int]], group_size: int,
    sampling: Sampling, *, autocast: bool = False, rule: TemperatureRule | None = None,
) -> Draw:  # fmt: skip
    """Samples and verifies `group_size` responses to each of these prompts; `start`: the first problem's position."""
    with precision(lm.device, autocast):
        streams = range(start, start + len(problems))
        tool = Called(lm, task, _repeated(problems, group_size)) if isinstance(task, ToolTask) else None
        samples = sample(lm, prompts, group_size, sampling, streams=streams, rule=rule, tool=tool)
    return verified(lm, task, start, problems, prompts, samples, sampling.temperature or 1.0)


def posed(
    vocabulary: Tokenized, task: Task, split: Split, start: int, count: int,
    check: Callable[[list[int]], None] = lambda ids: None,
) -> tuple[list[Problem], list[list[int]]]:  # fmt: skip
    """`count` problems from position `start` on, and their prompts as token ids.

    Raises:
        TokenPOError: naming the problem, if its prompt has no tokens, the tokenizer fails on it or `check` refuses it.
    """
    problems = task.problems(split, start, count)
    prompts = encoded(vocabulary, problems, start, lambda place: problems[place].prompt, check, split=split)
    # The end of a prompt as the model sees it says whether the response begins in its thinking.
    rendered = [vocabulary.decode(ids[-_END:]) for ids in prompts]
    return [replace(problem, rendered=end) for problem, end in zip(problems, rendered, strict=True)], prompts


def encoded(
    vocabulary: Tokenized, problems: Sequence[Problem], start: int, ask: Callable[[int], Prompt],
    check: Callable[[list[int]], None], named: str = "{}", split: Split = "train",
) -> list[list[int]]:  # fmt: skip
    """Token ids of the prompt `ask(place)` of each problem; TokenPOError as `posed`, with the problem as in `named`."""
    prompts = []
    for place, problem in enumerate(problems):
        try:
            prompts.append(vocabulary.encode(ask(place)))
            check(prompts[-1])
        except TokenPOError as error:
            where = problem.place or f"{split} problem {start + place}"
            raise TokenPOError(f"{named.format(where)}: {error}") from error
    return prompts


def verified(
    vocabulary: Tokenized, task: Task, start: int, problems: list[Problem], prompts: list[list[int]], samples: Samples,
    base: float,
) -> Draw:  # fmt: skip
    """Scores the responses to some problems; NotFinite for a reward that is not finite. `base` is as in `Draw`."""
    mask, group_size = samples.mask, len(samples) // len(problems)
    length = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)
    token_ids = [row[:size] for row, size in zip(samples.token_ids.tolist(), length.tolist(), strict=True)]

    def name(row: int) -> str:
        return f"response {row % group_size} to problem {start + row // group_size}"

    completions, scores = scored(vocabulary, task, _repeated(problems, group_size), token_ids, name)
    return Draw(
        **vars(samples), start=start, problems=problems, prompts=prompts, base=base, completions=completions,
        scores=scores,
    )  # fmt: skip


class Called:
    """A task's tool, called by the sampler; `problems` has the problem of each row."""

    def __init__(self, lm: LanguageModel, task: ToolTask, problems: Sequence[Problem]) -> None:
        self._lm, self._task, self._problems = lm, task, problems
        self.ends = lm.tokens_ending(task.calls)

    def __call__(self, row: int, token_ids: Sequence[int]) -> Sequence[int]:
        answer = self._task.reply(self._problems[row], self._lm.decode(token_ids))
        return [] if not answer else self._lm.inserted(answer)


def _repeated(problems: Sequence[Problem], group_size: int) -> list[Problem]:
    """The problem of each row."""
    return [problem for problem in problems for _ in range(group_size)]


def scored(
    vocabulary: Tokenized, task: Task, problems: list[Problem], token_ids: list[list[int]], name: Callable[[int], str]
) -> tuple[list[str], list[Score]]:
    """(completions as texts, their scores); `name` names a row in messages.

    Raises:
        TokenPOError, NotFinite: the task gave a wrong number of scores, or a reward that is not finite.
    """
    completions = [vocabulary.decode(without_eos(ids, vocabulary.eos_ids)) for ids in token_ids]
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
    return completions, scores


def without_eos(ids: list[int], eos: Sequence[int]) -> list[int]:
    return ids[:-1] if ids and ids[-1] in eos else ids

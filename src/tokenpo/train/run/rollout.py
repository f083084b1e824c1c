"""A rollout batch: sample responses to problems, score them, choose groups, and give an objective its inputs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ...base.errors import NotFinite, TokenPOError
from ...core.ops import group, turns
from ...core.request_temperature import TemperatureRule
from ...core.types import Rollouts
from ..models import LanguageModel, Samples, Sampling, Vocabulary, require_room, sample
from ..tasks import Problem, Score, Split, Task, ToolTask
from ..tasks.types import Turn

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
    rule: TemperatureRule | None = None,
) -> Draw:  # fmt: skip
    """Samples and verifies `group_size` responses to each of the `count` problems from position `start` on.

    A problem's position keys its random numbers, so it gets the same responses in every batch.
    """
    problems, prompts = pose(lm, task, split, start, count, lambda ids: require_room(lm, ids, sampling))
    return respond(lm, task, start, problems, prompts, group_size, sampling, rule=rule)


def respond(
    lm: LanguageModel, task: Task, start: int, problems: list[Problem], prompts: list[list[int]], group_size: int,
    sampling: Sampling, *, rule: TemperatureRule | None = None,
) -> Draw:  # fmt: skip
    """Samples and verifies `group_size` responses to each of these prompts; `start`: the first problem's position.

    Raises:
        NotFinite: a reward is not finite.
    """
    streams, repeated = range(start, start + len(problems)), _repeated(problems, group_size)
    tool = Called(lm, task, repeated) if isinstance(task, ToolTask) else None
    samples = sample(lm, prompts, group_size, sampling, streams=streams, rule=rule, tool=tool)
    mask = samples.mask
    length = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)
    token_ids = [row[:size] for row, size in zip(samples.token_ids.tolist(), length.tolist(), strict=True)]

    def name(row: int) -> str:
        return f"response {row % group_size} to problem {start + row // group_size}"

    completions, scores = grade(lm, task, repeated, token_ids, name)
    return Draw(
        **vars(samples), start=start, problems=problems, prompts=prompts, base=sampling.temperature or 1.0,
        completions=completions, scores=scores,
    )  # fmt: skip


def pose(
    vocabulary: Vocabulary, task: Task, split: Split, start: int, count: int,
    check: Callable[[list[int]], None],
) -> tuple[list[Problem], list[list[int]]]:  # fmt: skip
    """`count` problems from position `start` on, and their prompts as token ids.

    Raises:
        TokenPOError: naming the problem, if its prompt has no tokens, the tokenizer fails on it or `check` rejects it.
    """
    problems = task.problems(split, start, count)
    prompts = encode_prompts(vocabulary, problems, start, lambda place: problems[place].prompt, check, split=split)
    # The end of a prompt as the model sees it says whether the response begins in its thinking.
    rendered = [vocabulary.decode(ids[-_END:]) for ids in prompts]
    return [replace(problem, rendered=end) for problem, end in zip(problems, rendered, strict=True)], prompts


def encode_prompts(
    vocabulary: Vocabulary, problems: Sequence[Problem], start: int, ask: Callable[[int], Prompt],
    check: Callable[[list[int]], None], named: str = "{}", split: Split = "train",
) -> list[list[int]]:  # fmt: skip
    """Token ids of the prompt `ask(place)` of each problem; TokenPOError as `pose`, with the problem as in `named`."""
    prompts = []
    for place, problem in enumerate(problems):
        try:
            prompts.append(vocabulary.encode(ask(place)))
            check(prompts[-1])
        except TokenPOError as error:
            where = problem.place or f"{split} problem {start + place}"
            raise TokenPOError(f"{named.format(where)}: {error}") from error
    return prompts


class Called:
    """A task's tool, called by the sampler; `problems` has the problem of each row."""

    def __init__(self, lm: LanguageModel, task: ToolTask, problems: Sequence[Problem]) -> None:
        self._lm, self._task, self._problems = lm, task, problems
        self.ends = lm.tokens_ending(task.calls)

    def __call__(self, row: int, token_ids: Sequence[int]) -> Sequence[int]:
        answer = self._task.reply(self._problems[row], self._lm.decode(token_ids))
        return [] if not answer else self._lm.inserted(answer)


def _repeated(problems: Sequence[Problem], group_size: int) -> list[Problem]:
    return [problem for problem in problems for _ in range(group_size)]


def grade(
    vocabulary: Vocabulary, task: Task, problems: list[Problem], token_ids: list[list[int]], name: Callable[[int], str]
) -> tuple[list[str], list[Score]]:
    """(completions as texts, their scores); `name` names a row in messages.

    Raises:
        NotFinite: the task gave a reward that is not finite.
    """
    completions = [vocabulary.decode(without_eos(ids, vocabulary.eos_ids)) for ids in token_ids]
    scores = task.score(problems, completions, token_ids)
    largest = torch.finfo(torch.float32).max  # above it a reward would become an infinity
    bad = next((row for row, score in enumerate(scores) if not abs(score.reward) <= largest), None)
    if bad is not None:
        told = f"task {task.name!r} gave the reward {scores[bad].reward} for {name(bad)}"
        raise NotFinite(f"{told}: mend its verifier", bad)
    return completions, scores


def without_eos(ids: list[int], eos: Sequence[int]) -> list[int]:
    return ids[:-1] if ids and ids[-1] in eos else ids


@dataclass(frozen=True)
class Experience:
    """One rollout batch, ready for training.

    Args:
        rollouts: the objective's inputs; `group` counts from 0 in the order of `problems`.
        kept: the groups that are trained on; None if dynamic sampling left none.
        drawn: every draw, discarded groups included; statistics are over all of them.
        discarded: fraction of the drawn groups that dynamic sampling dropped.
        cursor: the first problem that was not drawn.
        continued: number of tokens sampled for the credit only: continuations, greedy responses and drafts.
    """

    rollouts: Rollouts | None
    kept: Draw | None
    drawn: list[Draw]
    discarded: float
    cursor: int
    continued: int = 0

    def everything(self) -> Rollouts:
        """The rollouts of every draw, discarded groups included."""
        return facts(_joined([(piece, group) for piece in self.drawn for group in range(len(piece.problems))]))


def gather(draws: Callable[[int, int], Draw], cursor: int, wanted: int, extra: int, *, choose: bool) -> Experience:
    """One rollout batch, from training problem `cursor` on.

    The size of a refill is estimated from the share of groups kept so far; it is at most a whole batch.

    Args:
        draws: (start, count) -> responses to these problems.
        wanted: number of groups to train on.
        extra: number of refills for groups that dynamic sampling dropped.
        choose: dynamic sampling: train only on groups whose rewards differ.
    """
    drawn: list[Draw] = []
    kept: list[tuple[Draw, int]] = []
    groups, count = 0, wanted
    for _ in range(1 + (extra if choose else 0)):
        piece = draws(cursor + groups, count)
        drawn.append(piece)
        kept += [(piece, group) for group in (mixed_groups(piece) if choose else range(count))]
        groups += count
        if len(kept) >= wanted:
            break
        count = group.refill(wanted, len(kept), groups)
    chosen = _joined(kept[:wanted]) if kept else None
    rollouts = None if chosen is None else facts(chosen)
    return Experience(rollouts, chosen, drawn, 1 - len(kept) / groups, cursor + groups)


def mixed_groups(piece: Draw) -> list[int]:
    mixed = group.mixed_groups(piece.reward().to(piece.mask.device), piece.prompt, piece.mask)
    return mixed.view(-1, piece.group_size).any(1).nonzero()[:, 0].tolist()


def _joined(groups: Sequence[tuple[Draw, int]]) -> Draw:
    """These groups as one draw, padded to the longest response."""
    first = groups[0][0]
    if all(piece is first for piece, _ in groups) and len(groups) == len(first.problems):
        return first
    size = first.group_size
    spans = [(piece, group, slice(group * size, (group + 1) * size)) for piece, group in groups]
    fills = {"temperature": 1, "kept_ids": -1}

    def rows(name: str) -> Tensor:
        parts = [getattr(piece, name)[span] for piece, _, span in spans]
        most = [max(sizes) for sizes in zip(*(x.shape[1:] for x in parts), strict=True)]
        return torch.cat([_widened(x, most, fills.get(name, 0)) for x in parts])

    samples = {field.name: rows(field.name) for field in fields(Samples) if getattr(first, field.name) is not None}
    prompt = torch.arange(len(groups), device=first.mask.device).repeat_interleave(size)
    return Draw(
        **{"kept_ids": None, **samples, "prompt": prompt},
        start=first.start,
        problems=[piece.problems[group] for piece, group, _ in spans],
        prompts=[piece.prompts[group] for piece, group, _ in spans],
        base=first.base,
        completions=[text for piece, _, span in spans for text in piece.completions[span]],
        asked=None if first.asked is None else [piece.question(group) for piece, group, _ in spans],
        scores=[score for piece, _, span in spans for score in piece.scores[span]],
    )


def _widened(x: Tensor, shape: Sequence[int], fill: float) -> Tensor:
    """x [M, ...] in a table of this shape, filled up at the ends."""
    table = x.new_full((len(x), *shape), fill)
    table[(slice(None), *map(slice, x.shape[1:]))] = x
    return table


def facts(kept: Draw) -> Rollouts:
    """The responses as rollouts for an objective; `group` counts the problems from 0."""
    return Rollouts(
        mask=kept.mask, reward=kept.reward().to(kept.mask.device), group=kept.prompt, old_logprob=kept.logprob,
        old_entropy=kept.entropy, rollout_logprob=kept.rollout_logprob,
        temperature=torch.full_like(kept.logprob, kept.base), token_ids=kept.token_ids, kept_ids=kept.kept_ids,
    )  # fmt: skip


# Inputs that `credit_inputs` can give.
CREDIT_INPUTS = frozenset({"rewards", "token_reward", "turn", "anchor"})


def credit_inputs(kept: Draw, rollouts: Rollouts, needs: frozenset[str]) -> dict[str, Tensor]:
    """Rewards by function, turns and rewards of turns: those that the task reports, and those in `needs`.

    A task that reports only a reward counts as one reward function and one turn, which begins at the prompt and gets
    the reward at its end.
    """
    scores, mask = kept.scores, rollouts.mask
    reported = ({"rewards"} if scores[0].rewards else set()) | (
        CREDIT_INPUTS - {"rewards"} if scores[0].turns else set()
    )
    required = reported | needs & CREDIT_INPUTS
    inputs: dict[str, Tensor] = {}
    if "rewards" in required:
        names = reward_names(kept)
        each = [[(score.rewards or {"reward": score.reward})[name] for name in names] for score in scores]
        inputs["rewards"] = torch.tensor(each, device=mask.device)
    if required - {"rewards"}:
        inputs |= _turns(kept, mask)
    return {name: x for name, x in inputs.items() if name in required}


def reward_names(kept: Draw) -> list[str]:
    return list(kept.scores[0].rewards or {"reward": 0.0})


def _turns(kept: Draw, mask: Tensor) -> dict[str, Tensor]:
    """Each run of sampled tokens is a turn; turns without tokens, after a cut response, pay with the last turn."""
    turn = turns.numbered(mask)
    arriving, anchor = torch.zeros(mask.shape, dtype=torch.float64), torch.zeros(mask.shape, dtype=torch.long)
    names: dict[tuple[int, str], int] = {}
    group = kept.prompt.tolist()
    for row, score in enumerate(kept.scores):
        reported = score.turns or (Turn(score.reward, ""),)
        places = mask[row].nonzero()[:, 0].tolist()
        runs = turn[row][mask[row]].tolist()
        for place, run, following in zip(places, runs, [*runs[1:], None], strict=True):
            state = names.setdefault((group[row], reported[run].state), len(names))
            anchor[row, place] = state
            if run != following:
                arrived = reported[run:] if following is None else reported[run : run + 1]
                arriving[row, place] = math.fsum(one.reward for one in arrived)
    device = mask.device
    return {"turn": turn, "anchor": anchor.to(device), "token_reward": arriving.float().to(device)}

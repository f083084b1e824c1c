"""Continuations from the middle of responses, sampled and verified: what `Rollouts.gain` is made of."""

from __future__ import annotations

import dataclasses

import torch

from ...core.parts import Continuations
from ...core.types import Rollouts
from ...models import LanguageModel, Sampling, sample
from ...models.device import precision
from ...models.token_draw import TemperatureRule
from ...tasks import Task
from .draw import Draw, scored, without_eos


def continued(
    lm: LanguageModel,
    task: Task,
    kept: Draw,
    rollouts: Rollouts,
    plan: Continuations,
    sampling: Sampling,
    *,
    autocast: bool = False,
    rule: TemperatureRule | None = None,
) -> tuple[Rollouts, int]:
    """The facts with `gain`, and how many tokens were sampled for it.

    Responses to one problem that share a prefix share what is drawn from its end. No continuation makes a response
    longer than `sampling.max_new_tokens`.

    Args:
        kept: what was drawn, of which `rollouts` are the facts.
        sampling: its seed addresses the continuations of this batch, in the order in which their prefixes first appear.
    """
    ids, groups, cuts = rollouts.need("token_ids").tolist(), rollouts.group.tolist(), plan.at(rollouts)
    places: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
    for row, t in cuts.nonzero().tolist():
        places.setdefault((groups[row], tuple(ids[row][:t])), []).append((row, t))
    value = torch.zeros_like(rollouts.old_logprob)
    # As many at once as the batch has rows; those of like length together, as the longest sets the pace.
    order = sorted(enumerate(places.items()), key=lambda one: len(one[1][0][1]))
    size, tokens = max(1, len(rollouts) // plan.count), 0
    for first in range(0, len(order), size):
        piece = order[first : first + size]
        prefixes = [(group, list(prefix)) for _, ((group, prefix), _) in piece]
        rewards, drawn = _drawn(lm, task, kept, prefixes, [k for k, _ in piece], plan.count, sampling, autocast, rule)
        tokens += drawn
        for (_, (_, there)), reward in zip(piece, rewards, strict=True):
            for row, t in there:
                value[row, t] = reward
    gain = plan.gain(rollouts, cuts, value).to(rollouts.old_logprob.dtype)
    return dataclasses.replace(rollouts, gain=gain), tokens


def _drawn(
    lm: LanguageModel,
    task: Task,
    kept: Draw,
    prefixes: list[tuple[int, list[int]]],
    streams: list[int],
    count: int,
    sampling: Sampling,
    autocast: bool,
    rule: TemperatureRule | None,
) -> tuple[list[float], int]:
    """The mean reward of the continuations of each prefix, a problem's place and what was said; tokens of all."""
    texts = [kept.prompts[group] + said for group, said in prefixes]
    limits = [sampling.max_new_tokens - len(said) for _, said in prefixes]
    longest = dataclasses.replace(sampling, max_new_tokens=max(limits))
    with precision(lm.device, autocast):
        out = sample(lm, texts, count, longest, streams=streams, rule=rule, limits=limits)
    said = [prefix for prefix in prefixes for _ in range(count)]
    token_ids = [
        [*before, *row[mask].tolist()]
        for (_, before), row, mask in zip(said, out.token_ids.cpu(), out.mask.cpu(), strict=True)
    ]
    problems = [kept.problems[group] for group, _ in said]
    completions = [lm.decode(without_eos(row, lm.eos_ids)) for row in token_ids]
    scores = scored(task, problems, completions, token_ids, lambda row: f"a continuation of problem {said[row][0]}")
    reward = torch.tensor([score.reward for score in scores], dtype=torch.float64).view(-1, count)
    return reward.mean(1).tolist(), int(out.mask.sum())

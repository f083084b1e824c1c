"""Problems to rollouts: draws responses from the local model, and the extra samples or scores that a credit needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from ...base.errors import TokenPOError
from ...core.objective import Objective
from ...core.parts import Coalitions, Continuations, Drafts
from ...core.seeds import keyed_seed
from ...models import LanguageModel, Sampling, require_room, sample
from ...models.device import precision
from ...models.token_draw import TemperatureRule
from ...recipe.config import Config
from ...runs.rollouts.draw import Called, Draw, answered, draw, scored, verified, without_eos
from ...runs.rollouts.experience import Experience, gather
from ...tasks import Task, ToolTask


def collect(
    config: Config,
    lm: LanguageModel,
    task: Task,
    cursor: int,
    rule: TemperatureRule | None,
    objective: Objective | None = None,
) -> Experience:
    """One rollout batch, from training problem `cursor` on.

    Args:
        objective: if it needs them, drafts are sampled, `Rollouts.gain` is computed by continuing responses or scoring
            their parts, and `Rollouts.baseline` by a greedy response; None does none of these.
    """
    options, autocast = config.rollout, config.train.autocast
    sampling = Sampling(options.max_new_tokens, options.temperature, keyed_seed(config.seed, "sampling"))

    plan, spent = None if objective is None else objective.drafts, []

    def fresh(start: int, count: int) -> Draw:
        if plan is None:
            return draw(lm, task, "train", start, count, options.group_size, sampling, autocast=autocast, rule=rule)
        early = dataclasses.replace(sampling, seed=keyed_seed(config.seed, "drafts"))
        drafts = draw(lm, task, "train", start, count, plan.count, early, autocast=autocast, rule=rule)
        spent.append(int(drafts.mask.sum()))
        questions, prompts = _second_prompts(lm, drafts, plan, sampling)
        same = {"autocast": autocast, "rule": rule}
        final = answered(lm, task, start, drafts.problems, prompts, options.group_size, sampling, **same)
        return dataclasses.replace(final, asked=questions)

    batch = gather(fresh, cursor, options.prompts, options.max_extra_batches, choose=options.dynamic_sampling)
    batch = dataclasses.replace(batch, continued=sum(spent))
    # The cursor is different in every batch, so it keys the random numbers.
    again = dataclasses.replace(sampling, seed=keyed_seed(config.seed, "continuations", cursor))
    if objective is not None and "baseline" in objective.needs:
        batch = _over_greedy(lm, task, batch, dataclasses.replace(sampling, temperature=0.0), autocast)
    if objective is not None and objective.continuations is not None:
        return _continued(lm, task, batch, objective.continuations, again, autocast, rule)
    if objective is not None and objective.coalitions is not None:
        return _attributed(lm, task, batch, objective.coalitions)
    return batch


def _second_prompts(lm: LanguageModel, drafts: Draw, plan: Drafts, sampling: Sampling) -> tuple[list, list[list[int]]]:
    """The prompt of each problem with its best draft, as text or messages and as token ids.

    Raises:
        TokenPOError: naming the problem, if no room is left for a response or the tokenizer fails.
    """
    best = drafts.reward().view(-1, plan.count).argmax(1).tolist()  # the first of the largest
    questions, prompts = [], []
    for place, (problem, chosen) in enumerate(zip(drafts.problems, best, strict=True)):
        questions.append(plan.prompt(problem.prompt, drafts.completions[place * plan.count + chosen]))
        try:
            prompts.append(lm.encode(questions[-1]))
            require_room(lm, prompts[-1], sampling)
        except TokenPOError as error:
            where = problem.place or f"train problem {drafts.start + place}"
            raise TokenPOError(f"{where}, with its draft: {error}") from error
    return questions, prompts


def _over_greedy(lm: LanguageModel, task: Task, batch: Experience, sampling: Sampling, autocast: bool) -> Experience:
    """The batch with `baseline`, and with the tokens sampled for it added to `continued`."""
    rollouts, kept = batch.rollouts, batch.kept
    if rollouts is None or kept is None:
        return batch
    with precision(lm.device, autocast):
        tool = Called(lm, task, kept.problems) if isinstance(task, ToolTask) else None
        samples = sample(lm, kept.prompts, 1, sampling, streams=range(len(kept.prompts)), tool=tool)
    greedy = verified(lm, task, kept.start, kept.problems, kept.prompts, samples, 1.0)
    reward = greedy.reward().to(rollouts.reward.device)[rollouts.group]
    tokens = batch.continued + int(greedy.mask.sum())
    return dataclasses.replace(batch, rollouts=dataclasses.replace(rollouts, baseline=reward), continued=tokens)


def _attributed(lm: LanguageModel, task: Task, batch: Experience, plan: Coalitions) -> Experience:
    """The batch with `gain`, computed from the task's scores of parts of responses."""
    rollouts, kept = batch.rollouts, batch.kept
    if rollouts is None or kept is None:
        return batch

    def score(parts: Sequence[tuple[int, list[int]]]) -> list[float]:
        problems = [kept.problems[row // kept.group_size] for row, _ in parts]
        texts = [lm.decode(without_eos(ids, lm.eos_ids)) for _, ids in parts]
        ids = [ids for _, ids in parts]
        scores = scored(task, problems, texts, ids, lambda i: f"a part of response {parts[i][0]}")
        return [score.reward for score in scores]

    gain = plan.gain(rollouts, score).to(rollouts.old_logprob.dtype)
    return dataclasses.replace(batch, rollouts=dataclasses.replace(rollouts, gain=gain))


def _continued(
    lm: LanguageModel,
    task: Task,
    batch: Experience,
    plan: Continuations,
    sampling: Sampling,
    autocast: bool,
    rule: TemperatureRule | None,
) -> Experience:
    """The batch with `gain`, and with the tokens sampled for it added to `continued`.

    Responses to one problem that share a prefix share its continuations. No continuation makes a response longer than
    `sampling.max_new_tokens`; random numbers are keyed by the order in which prefixes first appear.
    """
    rollouts, kept = batch.rollouts, batch.kept
    if rollouts is None or kept is None:
        return batch
    count, tokens = plan.count, batch.continued

    def drawn(prefixes: list[tuple[int, tuple[int, ...]]], streams: list[int]) -> tuple[list[float], int]:
        """(mean reward of each prefix's continuations, number of tokens sampled)."""
        texts = [[*kept.prompts[group], *prefix] for group, prefix in prefixes]
        limits = [sampling.max_new_tokens - len(prefix) for _, prefix in prefixes]
        longest = dataclasses.replace(sampling, max_new_tokens=max(limits))
        with precision(lm.device, autocast):
            out = sample(lm, texts, count, longest, streams=streams, rule=rule, limits=limits)
        origins = [prefix for prefix in prefixes for _ in range(count)]
        rows = zip(origins, out.token_ids.cpu(), out.mask.cpu(), strict=True)
        token_ids = [[*prefix, *row[mask].tolist()] for (_, prefix), row, mask in rows]
        problems = [kept.problems[group] for group, _ in origins]
        completions = [lm.decode(without_eos(ids, lm.eos_ids)) for ids in token_ids]
        scores = scored(task, problems, completions, token_ids, lambda i: f"a continuation of problem {origins[i][0]}")
        reward = torch.tensor([score.reward for score in scores], dtype=torch.float64).view(-1, count)
        return reward.mean(1).tolist(), int(out.mask.sum())

    ids, groups, cuts = rollouts.need("token_ids").tolist(), rollouts.group.tolist(), plan.at(rollouts)
    places: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
    for row, t in cuts.nonzero().tolist():
        places.setdefault((groups[row], tuple(ids[row][:t])), []).append((row, t))
    value = torch.zeros_like(rollouts.old_logprob)
    # At most the batch's number of rows at once, sorted by length, because the longest takes the time of all.
    order = sorted(enumerate(places.items()), key=lambda numbered: len(numbered[1][0][1]))
    size = max(1, len(rollouts) // count)
    for first in range(0, len(order), size):
        piece = order[first : first + size]
        rewards, sampled = drawn([prefix for _, (prefix, _) in piece], [number for number, _ in piece])
        tokens += sampled
        for (_, (_, cut_at)), reward in zip(piece, rewards, strict=True):
            for row, t in cut_at:
                value[row, t] = reward
    gain = plan.gain(rollouts, cuts, value).to(rollouts.old_logprob.dtype)
    return dataclasses.replace(batch, rollouts=dataclasses.replace(rollouts, gain=gain), continued=tokens)

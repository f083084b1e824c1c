"""Problems to rollouts: draws responses from the local model, and the extra samples or scores that a credit needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from ....core.objective import Objective
from ....core.parts import Coalitions, Continuations, Drafts
from ....core.request_temperature import TemperatureRule
from ....core.seeds import keyed_seed
from ....core.types import Rollouts
from ...models import LanguageModel, Sampling, require_room, sample
from ...models.device import precision
from ...recipe.config import Config
from ...tasks import Task
from ..draw import Draw, answered, draw, encoded, scored
from ..experience import Experience, gather


def collect(
    config: Config, lm: LanguageModel, task: Task, cursor: int, rule: TemperatureRule | None, objective: Objective
) -> Experience:
    """One rollout batch, from training problem `cursor` on.

    Args:
        objective: if it needs them, drafts are sampled, `Rollouts.gain` is computed by continuing responses or scoring
            their parts, and `Rollouts.baseline` by a greedy response.
    """
    options, autocast, plan = config.rollout, config.train.autocast, objective.drafts
    sampling = Sampling(options.max_new_tokens, options.temperature, keyed_seed(config.seed, "sampling"))
    tokens = 0  # sampled for the credit only

    def fresh(start: int, count: int) -> Draw:
        nonlocal tokens
        if plan is None:
            return draw(lm, task, "train", start, count, options.group_size, sampling, autocast=autocast, rule=rule)
        early = dataclasses.replace(sampling, seed=keyed_seed(config.seed, "drafts"))
        drafts = draw(lm, task, "train", start, count, plan.count, early, autocast=autocast, rule=rule)
        tokens += int(drafts.mask.sum())
        questions, prompts = _second_prompts(lm, drafts, plan, sampling)
        same = {"autocast": autocast, "rule": rule}
        final = answered(lm, task, start, drafts.problems, prompts, options.group_size, sampling, **same)
        return dataclasses.replace(final, asked=questions)

    batch = gather(fresh, cursor, options.prompts, options.max_extra_batches, choose=options.dynamic_sampling)
    rollouts, kept = batch.rollouts, batch.kept
    if rollouts is None or kept is None:
        return dataclasses.replace(batch, continued=tokens)
    facts: dict[str, Tensor] = {}
    if "baseline" in objective.needs:
        likeliest = dataclasses.replace(sampling, temperature=0.0)
        greedy = answered(lm, task, kept.start, kept.problems, kept.prompts, 1, likeliest, autocast=autocast)
        facts["baseline"] = greedy.reward().to(rollouts.reward.device)[rollouts.group]
        tokens += int(greedy.mask.sum())
    if objective.continuations is not None:
        # The cursor is different in every batch, so it keys the random numbers.
        again = dataclasses.replace(sampling, seed=keyed_seed(config.seed, "continuations", cursor))
        gain, more = _continued(lm, task, rollouts, kept, objective.continuations, again, autocast, rule)
        facts["gain"], tokens = gain.to(rollouts.old_logprob.dtype), tokens + more
    elif objective.coalitions is not None:
        facts["gain"] = _attributed(lm, task, rollouts, kept, objective.coalitions).to(rollouts.old_logprob.dtype)
    return dataclasses.replace(batch, rollouts=dataclasses.replace(rollouts, **facts), continued=tokens)


def _second_prompts(lm: LanguageModel, drafts: Draw, plan: Drafts, sampling: Sampling) -> tuple[list, list[list[int]]]:
    """The prompt of each problem with its best draft, as text or messages and as token ids; raises as `encoded`."""
    best = drafts.reward().view(-1, plan.count).argmax(1).tolist()  # the first of the largest
    texts = [drafts.completions[place * plan.count + chosen] for place, chosen in enumerate(best)]
    questions = [plan.prompt(problem.prompt, text) for problem, text in zip(drafts.problems, texts, strict=True)]
    return questions, encoded(
        lm, drafts.problems, drafts.start, questions.__getitem__, lambda ids: require_room(lm, ids, sampling),
        "{}, with its draft",
    )  # fmt: skip


def _attributed(lm: LanguageModel, task: Task, rollouts: Rollouts, kept: Draw, plan: Coalitions) -> Tensor:
    """`gain` of the rollouts, from the task's scores of parts of responses."""

    def score(parts: Sequence[tuple[int, list[int]]]) -> list[float]:
        problems = [kept.problems[row // kept.group_size] for row, _ in parts]
        _, scores = scored(lm, task, problems, [ids for _, ids in parts], lambda i: f"a part of response {parts[i][0]}")
        return [score.reward for score in scores]

    return plan.gain(rollouts, score)


def _continued(
    lm: LanguageModel, task: Task, rollouts: Rollouts, kept: Draw, plan: Continuations, sampling: Sampling,
    autocast: bool, rule: TemperatureRule | None,
) -> tuple[Tensor, int]:  # fmt: skip
    """(`gain` of the rollouts, number of tokens sampled for it).

    Responses to one problem that share a prefix share its continuations. No continuation makes a response longer than
    `sampling.max_new_tokens`; random numbers are keyed by the order in which prefixes first appear.
    """
    count, tokens = plan.count, 0
    ids, groups, cuts = rollouts.need("token_ids").tolist(), rollouts.group.tolist(), plan.at(rollouts)
    places: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
    for row, t in cuts.nonzero().tolist():
        places.setdefault((groups[row], tuple(ids[row][:t])), []).append((row, t))
    value = torch.zeros_like(rollouts.old_logprob)
    # At most the batch's number of rows at once, sorted by length, because the longest takes the time of all.
    order = sorted(enumerate(places), key=lambda numbered: len(numbered[1][1]))
    size = max(1, len(rollouts) // count)
    for first in range(0, len(order), size):
        streams, prefixes = zip(*order[first : first + size], strict=True)
        texts = [[*kept.prompts[group], *prefix] for group, prefix in prefixes]
        limits = [sampling.max_new_tokens - len(prefix) for _, prefix in prefixes]
        longest = dataclasses.replace(sampling, max_new_tokens=max(limits))
        with precision(lm.device, autocast):
            out = sample(lm, texts, count, longest, streams=streams, rule=rule, limits=limits)
        origins = [prefix for prefix in prefixes for _ in range(count)]
        rows = zip(origins, out.token_ids.cpu(), out.mask.cpu(), strict=True)
        token_ids = [[*prefix, *row[mask].tolist()] for (_, prefix), row, mask in rows]
        problems = [kept.problems[group] for group, _ in origins]
        name = [f"a continuation of problem {group}" for group, _ in origins].__getitem__
        _, scores = scored(lm, task, problems, token_ids, name)
        reward = torch.tensor([score.reward for score in scores], dtype=torch.float64).view(-1, count).mean(1)
        tokens += int(out.mask.sum())
        for prefix, mean in zip(prefixes, reward.tolist(), strict=True):
            for row, t in places[prefix]:
                value[row, t] = mean
    return plan.gain(rollouts, cuts, value), tokens

"""Problems to rollouts: draws responses from the local model, after drafts if the method puts them into prompts."""

from __future__ import annotations

import dataclasses

from ....core.objective import Objective
from ....core.request_temperature import TemperatureRule
from ....core.seeds import keyed_seed
from ....methods.contrib.igrpo import Drafts
from ...models import LanguageModel, Sampling, require_room
from ...recipe.config import Config
from ...tasks import Task
from ..draw import Draw, answered, draw, encoded
from ..experience import Experience, gather
from .sampler import Sampler


def collect(
    config: Config, lm: LanguageModel, task: Task, cursor: int, rule: TemperatureRule | None, objective: Objective
) -> Experience:
    """One rollout batch, from training problem `cursor` on.

    Args:
        objective: its `Supplied` parts compute their inputs; if one is `Drafts`, drafts are sampled first.
    """
    options, autocast = config.rollout, config.train.autocast
    plan = next((part for part in objective.supplied if isinstance(part, Drafts)), None)
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
    # The cursor is different in every batch, so it keys the random numbers.
    again = dataclasses.replace(sampling, seed=keyed_seed(config.seed, "continuations", cursor))
    sampler = Sampler(
        lm, kept.prompts, config.train.micro_tokens, task=task, kept=kept, again=again, autocast=autocast, rule=rule
    )
    rollouts = sampler.supply(objective, rollouts)
    return dataclasses.replace(batch, rollouts=rollouts, continued=tokens + sampler.continued_tokens)


def _second_prompts(lm: LanguageModel, drafts: Draw, plan: Drafts, sampling: Sampling) -> tuple[list, list[list[int]]]:
    """The prompt of each problem with its best draft, as text or messages and as token ids; raises as `encoded`."""
    best = drafts.reward().view(-1, plan.count).argmax(1).tolist()  # the first of the largest
    texts = [drafts.completions[place * plan.count + chosen] for place, chosen in enumerate(best)]
    questions = [plan.prompt(problem.prompt, text) for problem, text in zip(drafts.problems, texts, strict=True)]
    return questions, encoded(
        lm, drafts.problems, drafts.start, questions.__getitem__, lambda ids: require_room(lm, ids, sampling),
        "{}, with its draft",
    )  # fmt: skip

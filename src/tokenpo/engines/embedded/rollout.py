"""Problems to rollouts: responses drawn from the local model."""

from __future__ import annotations

import dataclasses

from ...core.parts import Continuations
from ...core.seeds import keyed_seed
from ...models import LanguageModel, Sampling
from ...models.token_draw import TemperatureRule
from ...recipe.config import Config
from ...runs.rollouts.continuing import continued
from ...runs.rollouts.draw import Draw, draw
from ...runs.rollouts.experience import Experience, gather
from ...tasks import Task


def collect(
    config: Config,
    lm: LanguageModel,
    task: Task,
    cursor: int,
    rule: TemperatureRule | None,
    plan: Continuations | None = None,
) -> Experience:
    """One rollout batch from position `cursor` of the training problems on.

    Args:
        rule: adaptive temperature.
        plan: where what is kept is continued from, for `Rollouts.gain`; None for nowhere.
    """
    options = config.rollout
    sampling = Sampling(options.max_new_tokens, options.temperature, keyed_seed(config.seed, "sampling"))

    def fresh(start: int, count: int) -> Draw:
        autocast = config.train.autocast
        size = options.group_size
        return draw(lm, task, "train", start, count, size, sampling, autocast=autocast, rule=rule)

    batch = gather(fresh, cursor, options.prompts, options.max_extra_batches, choose=options.dynamic_sampling)
    if plan is None or batch.kept is None or batch.rollouts is None:
        return batch
    # The first problem of a batch is that of no other: it addresses the draws.
    again = dataclasses.replace(sampling, seed=keyed_seed(config.seed, "continuations", cursor))
    autocast = config.train.autocast
    rollouts, tokens = continued(lm, task, batch.kept, batch.rollouts, plan, again, autocast=autocast, rule=rule)
    return dataclasses.replace(batch, rollouts=rollouts, continued=tokens)

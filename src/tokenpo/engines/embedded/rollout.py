"""Problems to rollouts: responses drawn from the local model."""

from __future__ import annotations

from ...core.seeds import keyed_seed
from ...models import LanguageModel, Sampling
from ...models.token_draw import TemperatureRule
from ...recipe.config import Config
from ...tasks import Task
from ...tasks.draw import Draw, draw
from ...tasks.experience import Experience, gather


def collect(config: Config, lm: LanguageModel, task: Task, cursor: int, rule: TemperatureRule | None) -> Experience:
    """One rollout batch from position `cursor` of the training problems on."""
    options = config.rollout
    sampling = Sampling(options.max_new_tokens, options.temperature, keyed_seed(config.seed, "sampling"))

    def fresh(start: int, count: int) -> Draw:
        autocast = config.train.autocast
        size = options.group_size
        return draw(lm, task, "train", start, count, size, sampling, autocast=autocast, rule=rule)

    return gather(fresh, cursor, options.prompts, options.max_extra_batches, choose=options.dynamic_sampling)

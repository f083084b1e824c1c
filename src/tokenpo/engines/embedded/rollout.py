"""Problems to rollouts: draw responses, refill what dynamic sampling dropped, up to a cap."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ...core.dynamic_sampling import refill
from ...core.parts import Continuations
from ...core.seeds import keyed_seed
from ...models import LanguageModel, Sampling
from ...models.token_draw import TemperatureRule
from ...recipe.config import Config
from ...tasks import Task
from ...tasks.continuing import continued
from ...tasks.draw import Draw, draw
from ...tasks.experience import Experience, facts, joined, mixed_groups

Draws = Callable[[int, int], Draw]


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

    extra = options.max_extra_batches if options.dynamic_sampling else 0
    drawn, kept = _fill(fresh, cursor, options.prompts, extra, choose=options.dynamic_sampling)
    groups = sum(len(piece.problems) for piece in drawn)
    usable = sum(len(groups_of) for groups_of in kept)
    chosen = joined(drawn, _first(kept, options.prompts))
    rollouts, tokens = None if chosen is None else facts(chosen), 0
    if chosen is not None and rollouts is not None and plan is not None:
        # The first problem of a batch is that of no other: it addresses the draws.
        again = dataclasses.replace(sampling, seed=keyed_seed(config.seed, "continuations", cursor))
        autocast = config.train.autocast
        rollouts, tokens = continued(lm, task, chosen, rollouts, plan, again, autocast=autocast, rule=rule)
    return Experience(rollouts, chosen, drawn, 1 - usable / groups, cursor + groups, tokens)


def _fill(draws: Draws, cursor: int, wanted: int, extra: int, *, choose: bool) -> tuple[list[Draw], list[list[int]]]:
    """Draws until `wanted` groups are worth training on, at most 1 + `extra` times; the draws and their kept groups.

    A refill asks for as many groups as the share kept so far suggests, at most a whole batch.
    """
    drawn: list[Draw] = []
    kept: list[list[int]] = []
    count = wanted
    while True:
        drawn.append(draws(cursor, count))
        cursor += count
        kept.append(mixed_groups(drawn[-1]) if choose else list(range(count)))
        have, seen = sum(map(len, kept)), sum(len(piece.problems) for piece in drawn)
        if have >= wanted or len(drawn) > extra:
            return drawn, kept
        count = refill(wanted, have, seen)


def _first(kept: Sequence[list[int]], most: int) -> list[list[int]]:
    """The first `most` of the kept groups of each draw."""
    before = [sum(map(len, kept[:i])) for i in range(len(kept))]
    return [groups[: max(0, most - seen)] for groups, seen in zip(kept, before, strict=True)]

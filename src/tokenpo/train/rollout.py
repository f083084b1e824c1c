"""Problems to rollouts: draw responses, refill what dynamic sampling dropped, up to a cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..lm import LanguageModel, Sampling
from ..responses import Draw, draw
from ..sampling import TemperatureRule
from ..sampling.seeds import keyed_seed
from ..tasks import Task
from ..types import Rollouts
from .config import Config


@dataclass(frozen=True)
class Experience:
    """One rollout batch, ready for training.

    Args:
        rollouts: facts for the objective; `group` counts from 0 in the order of `problems`.
        kept: what is trained on; None where dynamic sampling found nothing to learn from.
        drawn: every draw, discarded groups included: statistics are taken over all of them.
        discarded: fraction of the drawn groups that dynamic sampling dropped.
        cursor: the first problem that was not drawn.
    """

    rollouts: Rollouts | None
    kept: Draw | None
    drawn: list[Draw]
    discarded: float
    cursor: int

    def everything(self) -> Rollouts:
        """Facts of every draw, discarded groups included."""
        whole = _joined(self.drawn, [range(len(piece.problems)) for piece in self.drawn])
        assert whole is not None
        return _facts(whole)


Draws = Callable[[int, int], Draw]


def collect(config: Config, lm: LanguageModel, task: Task, cursor: int, rule: TemperatureRule | None) -> Experience:
    """One rollout batch from position `cursor` of the training problems on."""
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
    chosen = _joined(drawn, _first(kept, options.prompts))
    rollouts = None if chosen is None else _facts(chosen)
    return Experience(rollouts, chosen, drawn, 1 - usable / groups, cursor + groups)


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
        count = wanted if have == 0 else min(wanted, -(-(wanted - have) * seen // have))


def mixed_groups(piece: Draw) -> list[int]:
    """The groups whose rewards are not all equal."""
    reward = piece.reward().view(len(piece.problems), piece.group_size)
    return (reward != reward[:, :1]).any(1).nonzero()[:, 0].tolist()


def _first(kept: Sequence[list[int]], most: int) -> list[list[int]]:
    """The first `most` of the kept groups of each draw."""
    before = [sum(map(len, kept[:i])) for i in range(len(kept))]
    return [groups[: max(0, most - seen)] for groups, seen in zip(kept, before, strict=True)]


def _joined(drawn: Sequence[Draw], kept: Sequence[Sequence[int]]) -> Draw | None:
    """The kept groups of each draw as one draw, padded to the longest response."""
    pairs = [(piece, group) for piece, groups in zip(drawn, kept, strict=True) for group in groups]
    if not pairs:
        return None
    if len(drawn) == 1 and len(pairs) == len(drawn[0].problems):
        return drawn[0]
    size = drawn[0].group_size
    spans = [(piece, group, slice(group * size, (group + 1) * size)) for piece, group in pairs]
    width = max(piece.mask.shape[1] for piece, _ in pairs)

    def rows(name: str, fill: float = 0) -> Tensor:
        parts = [getattr(piece, name)[span] for piece, _, span in spans]
        return torch.cat([x if x.dim() == 1 else pad(x, (0, width - x.shape[1]), value=fill) for x in parts])

    return Draw(
        start=drawn[0].start,
        problems=[piece.problems[group] for piece, group, _ in spans],
        prompts=[piece.prompts[group] for piece, group, _ in spans],
        token_ids=rows("token_ids"),
        mask=rows("mask", False),
        logprob=rows("logprob"),
        entropy=rows("entropy"),
        temperature=rows("temperature", 1.0),
        finished=rows("finished"),
        completions=[text for piece, _, span in spans for text in piece.completions[span]],
        scores=[score for piece, _, span in spans for score in piece.scores[span]],
    )


def _facts(kept: Draw) -> Rollouts:
    device = kept.mask.device
    return Rollouts(
        mask=kept.mask,
        reward=kept.reward().to(device),
        group=torch.arange(len(kept.problems), device=device).repeat_interleave(kept.group_size),
        old_logprob=kept.logprob,
        old_entropy=kept.entropy,
        rollout_logprob=kept.logprob,
        temperature=kept.temperature,
        token_ids=kept.token_ids,
    )

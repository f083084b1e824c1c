"""A rollout batch: what was drawn, what of it trains, and the facts that an objective takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...base.errors import TokenPOError
from ...core import dynamic_sampling
from ...core.ops import turns
from ...core.types import Rollouts
from ...tasks.types import Turn
from .draw import Draw


@dataclass(frozen=True)
class Experience:
    """One rollout batch, ready for training.

    Args:
        rollouts: facts for the objective; `group` counts from 0 in the order of `problems`.
        kept: what is trained on; None where dynamic sampling found nothing to learn from.
        drawn: every draw, discarded groups included: statistics are taken over all of them.
        discarded: fraction of the drawn groups that dynamic sampling dropped.
        cursor: the first problem that was not drawn.
        continued: tokens of continuations, drawn from the middle of responses for the credit and not trained on.
    """

    rollouts: Rollouts | None
    kept: Draw | None
    drawn: list[Draw]
    discarded: float
    cursor: int
    continued: int = 0

    def everything(self) -> Rollouts:
        """Facts of every draw, discarded groups included."""
        whole = joined(self.drawn, [range(len(piece.problems)) for piece in self.drawn])
        assert whole is not None
        return facts(whole)


def gather(draws: Callable[[int, int], Draw], cursor: int, wanted: int, extra: int, *, choose: bool) -> Experience:
    """One rollout batch from position `cursor` of the training problems on.

    Args:
        draws: (start, count) -> responses to these problems.
        wanted: groups to train on.
        extra: how often what dynamic sampling dropped may be refilled.
        choose: dynamic sampling: only groups whose rewards differ are trained on.
    """
    drawn, kept = _fill(draws, cursor, wanted, extra if choose else 0, choose=choose)
    groups = sum(len(piece.problems) for piece in drawn)
    usable = sum(len(groups_of) for groups_of in kept)
    chosen = joined(drawn, _first(kept, wanted))
    rollouts = None if chosen is None else facts(chosen)
    return Experience(rollouts, chosen, drawn, 1 - usable / groups, cursor + groups)


def mixed_groups(piece: Draw) -> list[int]:
    """The groups whose rewards are not all equal."""
    mixed = dynamic_sampling.mixed_groups(piece.reward().to(piece.mask.device), piece.group(), piece.mask)
    return mixed.view(-1, piece.group_size).any(1).nonzero()[:, 0].tolist()


def joined(drawn: Sequence[Draw], kept: Sequence[Sequence[int]]) -> Draw | None:
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
        entropy=None if drawn[0].entropy is None else rows("entropy"),
        temperature=rows("temperature", 1.0),
        rollout_logprob=rows("rollout_logprob"),
        base=drawn[0].base,
        finished=rows("finished"),
        completions=[text for piece, _, span in spans for text in piece.completions[span]],
        scores=[score for piece, _, span in spans for score in piece.scores[span]],
    )


def facts(kept: Draw) -> Rollouts:
    """Of every response, for an objective; `group` counts the problems from 0."""
    device = kept.mask.device
    return Rollouts(
        mask=kept.mask,
        reward=kept.reward().to(device),
        group=kept.group(),
        old_logprob=kept.logprob,
        old_entropy=kept.entropy,
        rollout_logprob=kept.rollout_logprob,
        temperature=torch.full_like(kept.logprob, kept.base),
        token_ids=kept.token_ids,
    )


def _fill(
    draws: Callable[[int, int], Draw], cursor: int, wanted: int, extra: int, *, choose: bool
) -> tuple[list[Draw], list[list[int]]]:
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
        count = dynamic_sampling.refill(wanted, have, seen)


def _first(kept: Sequence[list[int]], most: int) -> list[list[int]]:
    """The first `most` of the kept groups of each draw."""
    before = [sum(map(len, kept[:i])) for i in range(len(kept))]
    return [groups[: max(0, most - seen)] for groups, seen in zip(kept, before, strict=True)]


# What `credited` knows of a rollout beside its reward.
CREDITED = frozenset({"rewards", "token_reward", "turn", "anchor"})


def credited(kept: Draw, rollouts: Rollouts, needs: frozenset[str]) -> dict[str, Tensor]:
    """Rewards by function, turns, and what arrived when: what the task told, and what an objective needs of it.

    Where a task tells no more than a reward, it is that of a single function, and arrives at the end of a single turn
    that began at the prompt.

    Raises:
        TokenPOError: scores of different reward functions, or without the turns that a tool has made.
    """
    scores, mask = kept.scores, rollouts.mask
    told = ({"rewards"} if scores[0].rewards else set()) | (CREDITED - {"rewards"} if scores[0].turns else set())
    wanted = told | needs & CREDITED
    found: dict[str, Tensor] = {}
    if "rewards" in wanted:
        names = reward_names(kept)
        each = [[(score.rewards or {"reward": score.reward})[name] for name in names] for score in scores]
        found["rewards"] = torch.tensor(each, device=mask.device)
    if wanted - {"rewards"}:
        found |= _turns(kept, mask)
    return {name: x for name, x in found.items() if name in wanted}


def reward_names(kept: Draw) -> list[str]:
    """What the columns of `rewards` are called.

    Raises:
        TokenPOError: scores of different reward functions.
    """
    names = list(kept.scores[0].rewards or {"reward": 0.0})
    for row, score in enumerate(kept.scores):
        if set(score.rewards or ("reward",)) != set(names):
            raise TokenPOError(
                f"the task scored response 0 by {', '.join(names)} and response {row} by "
                f"{', '.join(score.rewards or ('reward',))}: let it name the same rewards for every response"
            )
    return names


def _turns(kept: Draw, mask: Tensor) -> dict[str, Tensor]:
    """Each run of sampled tokens is a turn; turns without one, where a response was cut, arrive with the last."""
    turn = turns.numbered(mask)
    arriving, anchor = torch.zeros(mask.shape, dtype=torch.float64), torch.zeros(mask.shape, dtype=torch.long)
    names: dict[tuple[int, str], int] = {}
    group = kept.group().tolist()
    for row, score in enumerate(kept.scores):
        told = score.turns or (Turn(score.reward, ""),)
        places = mask[row].nonzero()[:, 0].tolist()
        runs = turn[row][mask[row]].tolist()
        if runs and runs[-1] >= len(told):
            raise TokenPOError(
                f"response {row} has {runs[-1] + 1} turns, and the task told of {len(told)}: give one for each"
            )
        for place, run, following in zip(places, runs, [*runs[1:], None], strict=True):
            state = names.setdefault((group[row], told[run].state), len(names))
            anchor[row, place] = state
            if run != following:
                arrived = told[run:] if following is None else told[run : run + 1]
                arriving[row, place] = math.fsum(one.reward for one in arrived)
    device = mask.device
    return {"turn": turn, "anchor": anchor.to(device), "token_reward": arriving.float().to(device)}

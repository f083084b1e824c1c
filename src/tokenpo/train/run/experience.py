"""A rollout batch: every draw, the groups that are trained on, and the inputs of an objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...base.errors import TokenPOError
from ...core import dynamic_sampling
from ...core.ops import turns
from ...core.types import Rollouts
from ..models import Samples
from ..tasks.types import Turn
from .draw import Draw


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
        count = dynamic_sampling.refill(wanted, len(kept), groups)
    chosen = _joined(kept[:wanted]) if kept else None
    rollouts = None if chosen is None else facts(chosen)
    return Experience(rollouts, chosen, drawn, 1 - len(kept) / groups, cursor + groups)


def mixed_groups(piece: Draw) -> list[int]:
    """The groups whose rewards are not all equal."""
    mixed = dynamic_sampling.mixed_groups(piece.reward().to(piece.mask.device), piece.prompt, piece.mask)
    return mixed.view(-1, piece.group_size).any(1).nonzero()[:, 0].tolist()


def _joined(groups: Sequence[tuple[Draw, int]]) -> Draw:
    """These groups as one draw, padded to the longest response."""
    first = groups[0][0]
    if all(piece is first for piece, _ in groups) and len(groups) == len(first.problems):
        return first
    size = first.group_size
    spans = [(piece, group, slice(group * size, (group + 1) * size)) for piece, group in groups]
    width = max(piece.mask.shape[1] for piece, _ in groups)

    def rows(name: str) -> Tensor:
        parts, fill = [getattr(piece, name)[span] for piece, _, span in spans], float(name == "temperature")
        return torch.cat([x if x.dim() == 1 else pad(x, (0, width - x.shape[1]), value=fill) for x in parts])

    samples = {field.name: rows(field.name) for field in fields(Samples) if getattr(first, field.name) is not None}
    prompt = torch.arange(len(groups), device=first.mask.device).repeat_interleave(size)
    return Draw(
        **{"entropy": None, **samples, "prompt": prompt},
        start=first.start,
        problems=[piece.problems[group] for piece, group, _ in spans],
        prompts=[piece.prompts[group] for piece, group, _ in spans],
        base=first.base,
        completions=[text for piece, _, span in spans for text in piece.completions[span]],
        asked=None if first.asked is None else [piece.question(group) for piece, group, _ in spans],
        scores=[score for piece, _, span in spans for score in piece.scores[span]],
    )


def facts(kept: Draw) -> Rollouts:
    """The responses as rollouts for an objective; `group` counts the problems from 0."""
    return Rollouts(
        mask=kept.mask, reward=kept.reward().to(kept.mask.device), group=kept.prompt, old_logprob=kept.logprob,
        old_entropy=kept.entropy, rollout_logprob=kept.rollout_logprob,
        temperature=torch.full_like(kept.logprob, kept.base), token_ids=kept.token_ids,
    )  # fmt: skip


# Inputs that `credited` can give.
CREDITED = frozenset({"rewards", "token_reward", "turn", "anchor"})


def credited(kept: Draw, rollouts: Rollouts, needs: frozenset[str]) -> dict[str, Tensor]:
    """Rewards by function, turns and rewards of turns: those that the task reports, and those in `needs`.

    A task that reports only a reward counts as one reward function and one turn, which begins at the prompt and gets
    the reward at its end.

    Raises:
        TokenPOError: scores of different reward functions, or fewer turns than a tool made.
    """
    scores, mask = kept.scores, rollouts.mask
    reported = ({"rewards"} if scores[0].rewards else set()) | (CREDITED - {"rewards"} if scores[0].turns else set())
    required = reported | needs & CREDITED
    inputs: dict[str, Tensor] = {}
    if "rewards" in required:
        names = reward_names(kept)
        each = [[(score.rewards or {"reward": score.reward})[name] for name in names] for score in scores]
        inputs["rewards"] = torch.tensor(each, device=mask.device)
    if required - {"rewards"}:
        inputs |= _turns(kept, mask)
    return {name: x for name, x in inputs.items() if name in required}


def reward_names(kept: Draw) -> list[str]:
    """The column names of `rewards`; TokenPOError if responses were scored by different reward functions."""
    names = list(kept.scores[0].rewards or {"reward": 0.0})
    for row, score in enumerate(kept.scores):
        if set(score.rewards or ("reward",)) != set(names):
            raise TokenPOError(
                f"the task scored response 0 by {', '.join(names)} and response {row} by "
                f"{', '.join(score.rewards or ('reward',))}: let it name the same rewards for every response"
            )
    return names


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
        if runs and runs[-1] >= len(reported):
            raise TokenPOError(
                f"response {row} has {runs[-1] + 1} turns, and the task told of {len(reported)}: give one for each"
            )
        for place, run, following in zip(places, runs, [*runs[1:], None], strict=True):
            state = names.setdefault((group[row], reported[run].state), len(names))
            anchor[row, place] = state
            if run != following:
                arrived = reported[run:] if following is None else reported[run : run + 1]
                arriving[row, place] = math.fsum(one.reward for one in arrived)
    device = mask.device
    return {"turn": turn, "anchor": anchor.to(device), "token_reward": arriving.float().to(device)}

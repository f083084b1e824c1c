"""A rollout batch: what was drawn, what of it trains, and the facts that an objective takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core import dynamic_sampling
from ..core.types import Rollouts
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
        entropy=rows("entropy"),
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

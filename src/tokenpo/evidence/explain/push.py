"""One method on one recording: the credit, the weight and the push of every token, and whose the push is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import MissingInput, NotFinite
from ...core.culprit import SOUND, broken
from ...core.objective import Objective
from ...core.ops import ranked
from ...core.parts import MemorySignal
from ...core.trial import evaluate
from ...core.types import FACTS
from ...methods.corrections import rejected
from ...page.text import percent
from ...runs.rollouts import Recording

# What a file has in the place of a tensor.
_IN_A_FILE = {"rewards": "an object: the name of each reward function and what it gave"}


@dataclass(frozen=True, eq=False)
class MethodPush:
    """What one method makes of N responses; all tensors are [N, T], 0 behind the end of a response.

    Args:
        label: as the user calls it.
        advantage: the credit of phase one.
        weight: factor on the surrogate.
        ratio: of the current to the old policy, as this method takes it.
        clipped: the trust region cuts this token's gradient.
        rejected: a correction for the policy that sampled drops the token; None where there is none that drops.
        push: −M ∂L/∂lp with M the response tokens of the recording: > 0 makes the token more likely.
        notes: what the numbers do not show.
    """

    label: str
    objective: Objective
    advantage: Tensor
    weight: Tensor
    ratio: Tensor
    clipped: Tensor
    rejected: Tensor | None
    push: Tensor
    notes: tuple[str, ...]


def missing(label: str, objective: Objective, recording: Recording) -> str:
    """Why the method cannot be held to this recording; "" where it can."""
    lacking = sorted(objective.needs - recording.inputs)
    if not lacking:
        return ""
    fields = "; ".join(f"'{name}' ({_IN_A_FILE.get(name, FACTS[name].meaning)})" for name in lacking)
    odd = f"; fields that are not read: {', '.join(recording.unread)}" if recording.unread else ""
    per = "token" if any(FACTS[name].shape == "[N, T]" for name in lacking) else "response"
    return (
        f"{label} needs what {recording.source} does not hold: write {fields} into every response, one number for each "
        f"{per} (docs/rollouts.md{odd})"
    )


def push_of(label: str, objective: Objective, recording: Recording) -> MethodPush:
    """Holds the objective to the whole recording as one optimiser step.

    Phase one, the look at the whole step where the objective asks for it, the loss, and its gradient to the
    log-probabilities. The objective is handed what it needs and nothing else; what remembers earlier batches has seen
    none.

    Raises:
        MissingInput: the recording lacks an input.
        NotFinite: a loss or gradient that is none.
    """
    if reason := missing(label, objective, recording):
        raise MissingInput(reason)
    rollouts, policy = recording.rollouts.only(objective.needs), recording.policy.only(objective.needs)
    seen = evaluate(objective, rollouts, policy)
    terms, mask, everything = seen.loss.terms, seen.batch.mask, rollouts.mask
    if not (seen.gradient[mask].isfinite().all() and seen.loss.value.isfinite()):
        found = broken(objective, seen.batch, seen.totals) or SOUND
        raise NotFinite(f"{label} on this recording is not finite: {found}")
    dropped = rejected(objective, seen.batch.of(rollouts, seen.batch.policy))
    return MethodPush(
        label=label,
        objective=objective,
        advantage=terms["advantage"],
        weight=torch.where(mask, terms["weight"], 0.0),
        ratio=torch.where(mask, terms["ratio"], 0.0),
        clipped=terms["clipped"].bool() & mask,
        rejected=dropped,
        # Adding 0 turns -0 into 0.
        push=torch.where(mask, -seen.gradient * everything.sum(), 0.0) + 0.0,
        notes=tuple(
            f"{label}: {note}"
            for note in [*_notes(objective), *_stale(objective, recording), *_rejections(dropped, everything)]
        ),
    )


def _rejections(dropped: Tensor | None, mask: Tensor) -> list[str]:
    """What a correction drops, in one line."""
    if dropped is None:
        return []
    rows, alive = dropped.any(1), mask.any(1)
    whole = rows & (dropped == mask).all(1)
    share, responses = float(dropped.sum() / mask.sum()), int(alive.sum())
    parts = f" and tokens of {int((rows & ~whole).sum())} more" if (rows & ~whole).any() else ""
    return [
        f"the correction for the policy that sampled rejects {percent(share)} of the tokens: {int(whole.sum())} of "
        f"{responses:,} responses whole{parts}."
    ]


def _stale(objective: Objective, recording: Recording) -> list[str]:
    """Where training would refuse what is shown."""
    if recording.lag is None or objective.corrects_rollout or not objective.assumes_on_policy:
        return []
    part = objective.assumes_on_policy[0]
    return [f"{part} takes the policy for the one that sampled, so that training refuses tokens of older policies."]


def _notes(objective: Objective) -> list[str]:
    """What of the method is not in the push."""
    notes = []
    if objective.entropy_gradient:
        notes.append("an entropy bonus pushes through the entropy too, which a push on log-probabilities leaves out.")
    if any(isinstance(memory, MemorySignal) for memory in objective.memories):
        notes.append("it remembers earlier batches; shown is a first batch, before which there was none.")
    if objective.passes:
        notes.append(f"it makes {len(objective.passes)} passes over a batch; shown is their sum, before the first.")
    if objective.draws:
        notes.append("it draws tokens at random; shown is one draw (seed 0).")
    if objective.temperature is not None:
        notes.append("it also samples at a temperature of its own; these rollouts may have been sampled at another.")
    return notes


@dataclass(frozen=True, eq=False)
class TokenKinds:
    """The kinds of tokens that shares are taken of; each [N, T] bool, inside the mask.

    Args:
        right: of responses that are said to be right.
        wrong: of responses that are said to be wrong; a response that was not judged is in neither.
        high: the entropy is at or above the quantile.
        low: it is below.
        threshold: the quantile, nats; None where no entropy is known; then `high` and `low` are None too.
    """

    mask: Tensor
    right: Tensor | None
    wrong: Tensor | None
    high: Tensor | None
    low: Tensor | None
    threshold: float | None

    @staticmethod
    def of(recording: Recording, quantile: float) -> TokenKinds:
        """The quantile is the nearest-rank one over all response tokens of the recording."""
        mask, entropy = recording.rollouts.mask, recording.entropy
        right, wrong = (
            torch.tensor([verdict is answer for verdict in recording.correct])[:, None] & mask
            for answer in (True, False)
        )
        judged = any(verdict is not None for verdict in recording.correct)
        threshold = None if entropy is None else float(ranked.quantile(entropy[mask], quantile))
        high = None if entropy is None or threshold is None else mask & (entropy >= threshold)
        return TokenKinds(
            mask=mask,
            right=right if judged else None,
            wrong=wrong if judged else None,
            high=high,
            low=None if high is None else mask & ~high,
            threshold=threshold,
        )


@dataclass(frozen=True)
class Shares:
    """What a row of the table says; NaN where it is undefined. All but `size` are fractions of Σ |push|.

    Args:
        size: mean |push| of a token.
        up: on tokens that are made more likely.
        right, wrong: on tokens of right, of wrong responses.
        high, low: on tokens of high, of low entropy.
        silent: fraction of the tokens whose push is 0.
        clipped: fraction of the tokens whose gradient the trust region cuts.
    """

    size: float
    up: float
    right: float
    wrong: float
    high: float
    low: float
    silent: float
    clipped: float


def shares(push: Tensor, clipped: Tensor, kinds: TokenKinds) -> Shares:
    """Of the push [N, T] of one method."""
    size, count = push.abs(), kinds.mask.sum()

    def part(kind: Tensor | None) -> float:
        return math.nan if kind is None else _over(size[kind].sum(), size.sum())

    return Shares(
        size=_over(size.sum(), count),
        up=part(push > 0),
        right=part(kinds.right),
        wrong=part(kinds.wrong),
        high=part(kinds.high),
        low=part(kinds.low),
        silent=_over(((push == 0) & kinds.mask).sum(), count),
        clipped=_over(clipped.sum(), count),
    )


def of_tokens(kinds: TokenKinds) -> Shares:
    """The same of a push that is equal on all tokens: what the shares of a method are to be compared with."""
    nobody = torch.zeros_like(kinds.mask)
    alike = shares(kinds.mask.double(), nobody, kinds)
    return Shares(**{**vars(alike), "size": math.nan, "up": math.nan, "silent": math.nan, "clipped": math.nan})


def cosine(a: Tensor, b: Tensor) -> float:
    """Of two pushes [N, T] as vectors over all tokens; NaN where one of them is 0 everywhere.

    >>> round(cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])), 6)
    0.707107
    """
    # Scaled first, so that squares of small numbers do not vanish.
    a, b = (x.double() / (x.abs().max() or 1.0) for x in (a, b))
    return _over((a * b).sum(), a.norm() * b.norm())


def _over(a: Tensor, b: Tensor) -> float:
    # Counts are integers, whose quotient torch would round to float32.
    return float(a) / float(b) if b else math.nan

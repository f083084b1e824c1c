"""One method on one recording: credit, weight and push of every token, and shares of the push."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...base.errors import MissingInput, NotFinite
from ...core.culprit import SOUND, broken
from ...core.objective import Objective
from ...core.ops import masked
from ...core.parts import MemorySignal
from ...core.trial import evaluate
from ...core.types import FACTS
from ...methods.extensions import rejected
from ...records import Recording
from ..page.text import percent

# Input -> its form in a file, if that is not a number per token or response.
_IN_A_FILE = {"rewards": "an object: the name of each reward function and what it gave"}


@dataclass(frozen=True, eq=False)
class MethodPush:
    """One method's numbers on N responses; all tensors are [N, T], 0 after the end of a response.

    Args:
        advantage, weight: the credit of phase one, and the factor on the surrogate.
        ratio: of the current to the old policy, as this method takes it.
        clipped: the trust region cuts this token's gradient.
        rejected: a correction for the sampling policy drops the token; None if no correction drops tokens.
        push: −M ∂L/∂lp, M the number of response tokens of the recording; > 0 makes the token more likely.
        notes: limits of the numbers.
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
    """A sentence on the inputs that the recording lacks for the method; "" if it has all."""
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
    """Evaluates the objective on the whole recording as one optimiser step, without memory of earlier batches."""
    if reason := missing(label, objective, recording):
        raise MissingInput(reason)
    rollouts, policy = recording.rollouts.only(objective.needs), recording.policy.only(objective.needs)
    result = evaluate(objective, rollouts, policy)
    terms, mask = result.loss.terms, result.batch.mask
    if not (result.gradient[mask].isfinite().all() and result.loss.value.isfinite()):
        cause = broken(objective, result.batch, result.totals) or SOUND
        raise NotFinite(f"{label} on this recording is not finite: {cause}")
    dropped = rejected(objective, result.batch.of(rollouts, result.batch.policy))
    weight, ratio = (torch.where(mask, terms[name], 0.0) for name in ("weight", "ratio"))
    push = torch.where(mask, -result.gradient * rollouts.mask.sum(), 0.0) + 0.0  # adding 0 turns -0 into 0
    notes = tuple(f"{label}: {note}" for note in _limits(objective, recording, dropped))
    clipped = terms["clipped"].bool() & mask
    return MethodPush(label, objective, terms["advantage"], weight, ratio, clipped, dropped, push, notes)


def _limits(objective: Objective, recording: Recording, dropped: Tensor | None) -> Iterator[str]:
    """Notes: parts of the method that the push leaves out, refusals in training, tokens that a correction drops."""
    if objective.entropy_gradient:
        yield "an entropy bonus pushes through the entropy too, which a push on log-probabilities leaves out."
    if objective.teacher_beta is not None:
        yield "it compares whole distributions with a teacher's, which a push on log-probabilities leaves out."
    if any(isinstance(memory, MemorySignal) for memory in objective.memories):
        yield "it remembers earlier batches; shown is a first batch, before which there was none."
    if objective.passes:
        yield f"it makes {len(objective.passes)} passes over a batch; shown is their sum, before the first."
    if objective.draws:
        yield "it draws tokens at random; shown is one draw (seed 0)."
    if objective.temperature is not None:
        yield "it also samples at a temperature of its own; these rollouts may have been sampled at another."
    if recording.lag is not None and objective.assumes_on_policy and not objective.corrects_rollout:
        part = objective.assumes_on_policy[0]
        yield f"{part} takes the policy for the one that sampled, so that training refuses tokens of older policies."
    if dropped is not None:
        mask = recording.rollouts.mask
        hit = dropped.any(1)
        whole = hit & (dropped == mask).all(1)
        share, partly = float(dropped.sum() / mask.sum()), int((hit & ~whole).sum())
        more = f" and tokens of {partly} more" if partly else ""
        yield (
            f"the correction for the policy that sampled rejects {percent(share)} of the tokens: {int(whole.sum())} of "
            f"{int(mask.any(1).sum()):,} responses whole{more}."
        )


@dataclass(frozen=True, eq=False)
class TokenKinds:
    """The kinds of tokens for the shares, each [N, T] bool inside the mask; None if the recording lacks its input.

    `high`: entropy at or above the `threshold` (nats); `low`: below it.
    """

    mask: Tensor
    right: Tensor | None
    wrong: Tensor | None
    high: Tensor | None
    low: Tensor | None
    threshold: float | None

    @staticmethod
    def of(recording: Recording, quantile: float) -> TokenKinds:
        """The kinds of a recording; the threshold is the nearest-rank quantile over all response tokens."""
        mask, entropy, correct = recording.rollouts.mask, recording.entropy, recording.correct
        right = wrong = high = low = threshold = None
        if any(verdict is not None for verdict in correct):
            right, wrong = (torch.tensor([x is answer for x in correct])[:, None] & mask for answer in (True, False))
        if entropy is not None:
            threshold = float(masked.quantile(entropy[mask], quantile))
            high = mask & (entropy >= threshold)
            low = mask & ~high
        return TokenKinds(mask, right, wrong, high, low, threshold)


@dataclass(frozen=True)
class Shares:
    """A row of the table; NaN if undefined. `size` is the mean |push| of a token. `silent` and `clipped` are fractions
    of the tokens; the others are fractions of Σ |push|, `up` that on tokens made more likely.
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
    """The shares of one method's push [N, T]."""
    size, count = push.abs(), kinds.mask.sum()

    def part(kind: Tensor | None) -> float:
        return math.nan if kind is None else _over(size[kind].sum(), size.sum())

    return Shares(
        size=_over(size.sum(), count), up=part(push > 0), right=part(kinds.right), wrong=part(kinds.wrong),
        high=part(kinds.high), low=part(kinds.low), silent=_over(((push == 0) & kinds.mask).sum(), count),
        clipped=_over(clipped.sum(), count),
    )  # fmt: skip


def of_tokens(kinds: TokenKinds) -> Shares:
    """The shares of a push that is equal on all tokens, as a reference for the methods' shares."""
    equal = shares(kinds.mask.double(), torch.zeros_like(kinds.mask), kinds)
    return replace(equal, size=math.nan, up=math.nan, silent=math.nan, clipped=math.nan)


def cosine(a: Tensor, b: Tensor) -> float:
    """The cosine of two pushes [N, T] as vectors over all tokens; NaN if one is 0 everywhere.

    >>> round(cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])), 6)
    0.707107
    """
    # Scaled first, so that squares of small numbers do not vanish.
    a, b = (x.double() / (x.abs().max() or 1.0) for x in (a, b))
    return _over((a * b).sum(), a.norm() * b.norm())


def _over(a: Tensor, b: Tensor) -> float:
    # As Python floats, because torch rounds a quotient of integers to float32.
    return float(a) / float(b) if b else math.nan

"""One response as the page shows it: a card of tokens, each with a colour and a number per quantity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...base.text import number
from ...runs.read import Number, Rollout
from .scale import QUANTITIES, Scale, clip_state
from .text import paragraph, visible

HEAD, TAIL = 400, 200  # tokens drawn of a longer response
TOKEN_LIMIT, PROMPT_LIMIT, LABEL_LIMIT = 60, 2_000, 60  # characters
SHOWN_LIMIT = 120  # characters of a token after each of its marks was spelt out


@dataclass(frozen=True)
class Token:
    """One row: position (from 1), text, style classes, a formatted number per quantity; `gap` tokens omitted before."""

    position: int
    text: str
    classes: str
    values: tuple[str, ...]
    breaks: bool
    gap: int = 0


@dataclass(frozen=True)
class Card:
    """One response as the page shows it."""

    rollout: Rollout
    prompt: str
    answer: str
    tokens: tuple[Token, ...]

    @property
    def verdict(self) -> str:
        correct = self.rollout.correct
        return "✓ right" if correct else "not judged" if correct is None else "✗ wrong"

    @property
    def tone(self) -> str:
        """The style class of the verdict."""
        correct = self.rollout.correct
        return "good" if correct else "" if correct is None else "bad"

    @property
    def before(self) -> str:
        """What stands before the expected answer."""
        return f"reward {number(self.rollout.reward)}"

    @property
    def after(self) -> str:
        """What stands behind it."""
        group = "" if self.rollout.group is None else f", group {self.rollout.group}"
        return f" · {len(self.rollout.tokens):,} tokens · row {self.rollout.row}{group}"

    @property
    def label(self) -> str:
        """Its name in a menu."""
        return f"row {self.rollout.row}: {self.verdict}, {self.before}, {len(self.rollout.tokens):,} tokens"


def card(rollout: Rollout, scales: Sequence[Scale]) -> Card:
    """The rollout with a colour and a number for each scale."""
    columns = [term(rollout, s.quantity.name) for s in scales]
    tokens = []
    last = -1
    for t in kept(len(rollout.tokens)):
        values = [column[t] for column in columns]
        tokens.append(
            Token(
                position=t + 1,
                text=token_text(rollout.tokens[t]),
                classes=" ".join(s.level(x) for s, x in zip(scales, values, strict=True)),
                values=tuple(shown(s.quantity.name, x) for s, x in zip(scales, values, strict=True)),
                breaks="\n" in rollout.tokens[t],
                gap=t - last - 1,
            )
        )
        last = t
    return Card(rollout, prompt_text(rollout), visible(rollout.answer, limit=200), tuple(tokens))


def quantities(drawn: Sequence[Rollout]) -> list[str]:
    """The names of what can be drawn: those the report knows in its own order, then the others."""
    recorded = dict.fromkeys(name for rollout in drawn for name in rollout.terms if rollout.terms[name])
    if "old_logprob" in recorded:
        # Shown as the probability; beside the current log-probability it would say the same thing twice.
        del recorded["old_logprob"]
        recorded["probability"] = None
    known = [q.name for q in QUANTITIES if q.name in recorded]
    return known + [name for name in recorded if name not in known]


def term(rollout: Rollout, name: str) -> Sequence[Number]:
    """[T] numbers of one quantity; None throughout where this rollout lacks it."""
    nothing = (None,) * len(rollout.tokens)
    values = rollout.terms.get(name, nothing)
    if name == "clipped":
        return [clip_state(c, r) for c, r in zip(values, rollout.terms.get("ratio", nothing), strict=True)]
    if name == "probability" and name not in rollout.terms:
        old = rollout.terms.get("old_logprob", nothing)
        return [None if x is None else math.exp(min(x, 0.0)) for x in old]
    return values


def shown(name: str, x: Number) -> str:
    """The number as text; a clip state in words."""
    if name == "clipped" and x is not None:
        return ("no", "below", "above")[int(x)]
    return number(x)


def token_text(token: str) -> str:
    text = visible(token, limit=TOKEN_LIMIT, spaces=True) or "∅"
    # Marks that are spelt out take up to eight characters each.
    return text if len(text) <= SHOWN_LIMIT else visible(token, limit=SHOWN_LIMIT // 10, spaces=True)


def prompt_text(rollout: Rollout) -> str:
    return paragraph(rollout.prompt, limit=PROMPT_LIMIT)


def kept(length: int) -> Iterator[int]:
    """The positions that are drawn of a response."""
    if length <= HEAD + TAIL:
        yield from range(length)
    else:
        yield from range(HEAD)
        yield from range(length - TAIL, length)

"""A response on a page: its outcome, and its tokens, each with a colour and a number per quantity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base.text import number
from ..runs.metrics import Number
from .scale import Scale
from .text import visible

HEAD, TAIL = 400, 200  # tokens drawn of a longer response
TOKEN_LIMIT, PROMPT_LIMIT, LABEL_LIMIT = 60, 2_000, 60  # characters
SHOWN_LIMIT = 120  # characters of a token after each of its marks was spelt out


@dataclass(frozen=True)
class DrawnToken:
    """Position (from 1), text, style classes, a formatted number per quantity; `gap` tokens are left out before it."""

    position: int
    text: str
    classes: str
    values: tuple[str, ...]
    breaks: bool
    gap: int


@dataclass(frozen=True)
class DrawnResponse:
    """A response of `length` tokens; `views` are its drawn ones, once for each method that is set beside the others."""

    row: int
    group: str
    length: int
    reward: Number
    correct: bool | None
    prompt: str
    answer: str
    views: tuple[tuple[DrawnToken, ...], ...]

    @property
    def verdict(self) -> str:
        return "✓ right" if self.correct else "not judged" if self.correct is None else "✗ wrong"

    @property
    def tone(self) -> str:
        """The style class of the verdict."""
        return "good" if self.correct else "" if self.correct is None else "bad"

    @property
    def before(self) -> str:
        """Text before the expected answer."""
        return f"reward {number(self.reward)}"

    @property
    def after(self) -> str:
        """Text after the expected answer."""
        return f" · {self.length:,} tokens · row {self.row}" + (f", group {self.group}" if self.group else "")

    @property
    def label(self) -> str:
        """Its name in a menu."""
        return f"row {self.row}: {self.verdict}, {self.before}, {self.length:,} tokens"


def draw_tokens(tokens: Sequence[str], columns: Sequence[tuple[Scale, Sequence[Number]]]) -> tuple[DrawnToken, ...]:
    """The tokens [T] with a colour and a number for each scale and its values [T]."""
    drawn, last = [], -1
    for t in kept(len(tokens)):
        classes = " ".join(scale.level(values[t]) for scale, values in columns)
        texts = tuple(scale.quantity.text(values[t]) for scale, values in columns)
        drawn.append(DrawnToken(t + 1, token_text(tokens[t]), classes, texts, "\n" in tokens[t], t - last - 1))
        last = t
    return tuple(drawn)


def token_text(token: str) -> str:
    text = visible(token, limit=TOKEN_LIMIT, spaces=True) or "∅"
    # Marks that are spelt out take up to eight characters each.
    return text if len(text) <= SHOWN_LIMIT else visible(token, limit=SHOWN_LIMIT // 10, spaces=True)


def kept(length: int) -> list[int]:
    """The positions that are drawn of a response."""
    return [t for t in range(length) if t < HEAD or t >= length - TAIL]

"""A response on a page: its outcome, and its tokens, each with a colour and a number per quantity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """One row: position (from 1), text, style classes, a formatted number per quantity; `gap` tokens omitted before."""

    position: int
    text: str
    classes: str
    values: tuple[str, ...]
    breaks: bool
    gap: int


@dataclass(frozen=True)
class DrawnResponse:
    """`views` are its drawn tokens, once for each method that a page sets beside the others; `length` counts all."""

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
        group = f", group {self.group}" if self.group else ""
        return f" · {self.length:,} tokens · row {self.row}{group}"

    @property
    def label(self) -> str:
        """Its name in a menu."""
        return f"row {self.row}: {self.verdict}, {self.before}, {self.length:,} tokens"


def draw_tokens(tokens: Sequence[str], columns: Sequence[tuple[Scale, Sequence[Number]]]) -> tuple[DrawnToken, ...]:
    """The tokens [T] with a colour and a number for each scale and its values [T]."""
    drawn, last = [], -1
    for t in kept(len(tokens)):
        drawn.append(
            DrawnToken(
                position=t + 1,
                text=token_text(tokens[t]),
                classes=" ".join(scale.level(values[t]) for scale, values in columns),
                values=tuple(scale.quantity.text(values[t]) for scale, values in columns),
                breaks="\n" in tokens[t],
                gap=t - last - 1,
            )
        )
        last = t
    return tuple(drawn)


def token_text(token: str) -> str:
    text = visible(token, limit=TOKEN_LIMIT, spaces=True) or "∅"
    # Marks that are spelt out take up to eight characters each.
    return text if len(text) <= SHOWN_LIMIT else visible(token, limit=SHOWN_LIMIT // 10, spaces=True)


def kept(length: int) -> Iterator[int]:
    """The positions that are drawn of a response."""
    if length <= HEAD + TAIL:
        yield from range(length)
    else:
        yield from range(HEAD)
        yield from range(length - TAIL, length)

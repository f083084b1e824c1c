"""The tokens of some responses as the page draws them: the same response once for each method, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...runs.rollouts import Response
from ..page.scale import QUANTITIES, Quantity, Scale, clip_state, scale
from ..page.text import paragraph, visible
from ..page.tokens import HEAD, PROMPT_LIMIT, TAIL, kept, shown, token_text
from .explanation import Explained
from .result import Explanation

MOST_METHODS = 12
MOST_TOKENS = 24_000  # drawn over all responses and methods
PUSH = Quantity(
    "push", "push", "signed", "−M ∂L/∂lp: blue is made more likely, orange less likely, white is left alone"
)
Values = Callable[[Explained, int, int], float | None]


@dataclass(frozen=True)
class Column:
    """A quantity of the page and where its numbers come from: (method, row, token) to a number."""

    quantity: Quantity
    value: Values


@dataclass(frozen=True)
class Token:
    """One drawn token: number from 1, text, style classes, a formatted number per quantity; `gap` left out before."""

    position: int
    text: str
    classes: str
    values: tuple[str, ...]
    breaks: bool
    gap: int


@dataclass(frozen=True)
class Card:
    """One response; `tokens[i]` as the i-th method sees them."""

    row: int
    response: Response
    prompt: str
    group: str
    tokens: tuple[tuple[Token, ...], ...]


@dataclass(frozen=True)
class Drawing:
    """What the page shows of single tokens; `fixed` are (quantity, value) that do not vary."""

    scales: tuple[Scale, ...]
    methods: tuple[Explained, ...]
    cards: tuple[Card, ...]
    fixed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def draw(result: Explanation, most: int) -> Drawing:
    """The tokens of at most `most` responses, in the order of the file."""
    methods, responses = result.methods[:MOST_METHODS], result.recording.responses
    rows = _affordable(responses, [*chosen(result)][:most], len(methods))
    cells = [(method, row, t) for row in rows for method in methods for t in kept(len(responses[row].tokens))]
    scales, columns, fixed = [], [], []
    for column in _columns(result):
        values = [column.value(*cell) for cell in cells]
        if len(set(values)) > 1:
            scales.append(scale(column.quantity, chr(ord("a") + len(scales)), values))
            columns.append(column)
        elif values:
            fixed.append((column.quantity.label, shown(column.quantity.name, values[0])))
    cards = tuple(
        Card(
            row=row,
            response=responses[row],
            prompt=paragraph(responses[row].prompt, limit=PROMPT_LIMIT),
            group=visible(str(responses[row].group), limit=60),
            tokens=tuple(tuple(_tokens(responses[row], row, method, columns, scales)) for method in methods),
        )
        for row in rows
    )
    return Drawing(tuple(scales), methods, cards, tuple(fixed), tuple(_notes(result, rows)))


def chosen(result: Explanation) -> Iterator[int]:
    """Rows worth reading, best first: of each group the response with the highest and with the lowest reward, groups
    in which rewards differ before the others; then all the rest."""
    responses = result.recording.responses
    groups: dict[int | str, list[int]] = {}
    for row, response in enumerate(responses):
        if response.tokens:
            groups.setdefault(response.group, []).append(row)
    ends = []
    for rows in groups.values():
        ranked = sorted(rows, key=lambda row: (-responses[row].reward, row))
        alike = responses[ranked[0]].reward == responses[ranked[-1]].reward
        ends.append((alike, [*dict.fromkeys((ranked[0], ranked[-1]))]))
    first = [row for _, pair in sorted(ends, key=lambda end: end[0]) for row in pair]
    yield from dict.fromkeys([*first, *(row for rows in groups.values() for row in rows)])


def _affordable(responses: Sequence[Response], rows: Sequence[int], methods: int) -> list[int]:
    """The first of these rows that fit on the page, at least one, in the order of the file."""
    affordable, budget = [], MOST_TOKENS
    for row in rows:
        cost = methods * sum(1 for _ in kept(len(responses[row].tokens)))
        if cost <= budget or not affordable:
            affordable.append(row)
            budget -= cost
    return sorted(affordable)


def _columns(result: Explanation) -> Iterator[Column]:
    """Of every method push, credit, weight, ratio and clip; then the policy's entropy, the same for all."""
    known = {quantity.name: quantity for quantity in QUANTITIES}
    entropy = result.recording.entropy
    yield Column(PUSH, lambda method, row, t: method.push[row, t].item())
    yield Column(known["advantage"], lambda method, row, t: method.advantage[row, t].item())
    yield Column(known["weight"], lambda method, row, t: method.weight[row, t].item())
    yield Column(known["ratio"], lambda method, row, t: method.ratio[row, t].item())
    yield Column(known["clipped"], lambda m, row, t: clip_state(m.clipped[row, t].item(), m.ratio[row, t].item()))
    if entropy is not None:
        yield Column(known["entropy"], lambda method, row, t: entropy[row, t].item())


def _tokens(
    response: Response, row: int, method: Explained, columns: Sequence[Column], scales: Sequence[Scale]
) -> Iterator[Token]:
    last = -1
    for t in kept(len(response.tokens)):
        values = [column.value(method, row, t) for column in columns]
        yield Token(
            position=t + 1,
            text=token_text(response.tokens[t]),
            classes=" ".join(s.level(x) for s, x in zip(scales, values, strict=True)),
            values=tuple(shown(column.quantity.name, x) for column, x in zip(columns, values, strict=True)),
            breaks="\n" in response.tokens[t],
            gap=t - last - 1,
        )
        last = t


def _notes(result: Explanation, rows: Sequence[int]) -> Iterator[str]:
    responses = result.recording.responses
    if len(rows) < len(responses):
        yield f"Drawn are {len(rows)} of {len(responses):,} responses; the shares are over all of them."
    if len(result.methods) > MOST_METHODS:
        yield f"Tokens are drawn for the first {MOST_METHODS} of {len(result.methods)} methods."
    if long := sum(len(responses[row].tokens) > HEAD + TAIL for row in rows):
        yield f"Of {long} long responses the first {HEAD} and the last {TAIL} tokens are drawn."

"""explain.html: the explanation as one file that loads nothing, runs nothing and can be mailed.

Tokens are drawn of some responses, the same response once for each method, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ...page import frame
from ...page.scale import KNOWN, Quantity, Scale, clip_state, scales
from ...page.text import paragraph, visible
from ...page.tokens import HEAD, PROMPT_LIMIT, TAIL, DrawnResponse, draw_tokens, kept
from ...runs.metrics import Number
from ...runs.rollouts import Response
from .explanation import Explanation
from .push import MethodPush
from .table import SHADES

HERE = Path(__file__).parent
MOST_METHODS = 12
MOST_TOKENS = 24_000  # drawn over all responses and methods
PUSH = Quantity(
    "push", "push", "signed", "−M ∂L/∂lp: blue is made more likely, orange less likely, white is left alone"
)
REJECTED = Quantity(
    "rejected", "rejected", "share", "1 where the correction for the policy that sampled drops the token"
)
LAG = Quantity(
    "lag", "lag", "unsigned", "updates between the policy that sampled the token and the newest that sampled one"
)


@dataclass(frozen=True)
class Drawn:
    """The tokens that the page draws; `fixed` are (quantity, value) that do not vary."""

    scales: tuple[Scale, ...]
    views: tuple[str, ...]
    cards: tuple[DrawnResponse, ...]
    fixed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def render(result: Explanation, responses: int = 8) -> str:
    """The page as text, with the tokens of at most `responses` responses. The same recording gives the same bytes."""
    drawn = draw_responses(result, responses)
    shares, *cosines = result.tables
    return frame.render(
        HERE / "explain.html",
        visible(result.title, limit=200),
        rules=_rules(drawn),
        source=visible(result.recording.source, limit=300),
        notes=[visible(note, limit=1000) for note in (*result.notes, *drawn.notes)],
        refused=[visible(reason, limit=1000) for _, reason in result.refused],
        legend=result.legend,
        shares=shares,
        cosines=cosines,
        drawn=drawn,
        named=[
            (visible(method.label, limit=80), paragraph(str(method.objective), limit=5000)) for method in result.methods
        ],
    )


def _rules(drawn: Drawn) -> list[str]:
    """The style rules of this page alone: colours per quantity, shades of cosines, methods, columns of the readout."""
    rules = [f".m{i}{{background:var(--d{i});color:var(--dt{i})}}" for i in range(SHADES)]
    rules += [rule for i, scale in enumerate(drawn.scales) for rule in scale.rules(i)]
    rules += [f":root:not(:has(#s{i}:checked)) .view-{i}{{display:none}}" for i in range(len(drawn.views))]
    columns = len(drawn.scales) + 1
    rules += [
        f".view .tokens tr:hover td:nth-of-type({i + 1}),.readout b:nth-of-type({i + 1})"
        f"{{left:{100 * i / columns:.2f}%}}"
        for i in range(columns)
    ]
    return rules


def draw_responses(result: Explanation, most: int) -> Drawn:
    """The tokens of at most `most` responses, in the order of the file."""
    methods, responses = result.methods[:MOST_METHODS], result.recording.responses
    rows = _affordable(responses, [*chosen(result)][:most], len(methods))
    # quantity -> (row, method) -> numbers of the response's tokens
    values = {
        q: {(row, i): of(method, row) for row in rows for i, method in enumerate(methods)}
        for q, of in _quantities(result)
    }
    varying, fixed = scales(
        [
            (q, [numbers[t] for (row, _), numbers in cells.items() for t in kept(len(responses[row].tokens))])
            for q, cells in values.items()
        ]
    )

    def card(row: int) -> DrawnResponse:
        response = responses[row]
        return DrawnResponse(
            row=row,
            group=visible(str(response.group), limit=60),
            length=len(response.tokens),
            reward=response.reward,
            correct=response.correct,
            prompt=paragraph(response.prompt, limit=PROMPT_LIMIT),
            answer="",
            views=tuple(
                draw_tokens(response.tokens, [(s, values[s.quantity][row, i]) for s in varying])
                for i in range(len(methods))
            ),
        )

    return Drawn(
        scales=tuple(varying),
        views=tuple(visible(method.label, limit=80) for method in methods),
        cards=tuple(map(card, rows)),
        fixed=tuple(fixed),
        notes=tuple(_notes(result, rows)),
    )


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


def _quantities(result: Explanation) -> Iterator[tuple[Quantity, Callable[[MethodPush, int], Sequence[Number]]]]:
    """Each quantity with a function from (method, row) to one number a token: push, credit, weight, ratio and clip of
    every method, then entropy and lag, which all methods share.
    """
    entropy, lag = result.recording.entropy, result.recording.lag
    yield PUSH, lambda method, row: method.push[row].tolist()
    yield KNOWN["advantage"], lambda method, row: method.advantage[row].tolist()
    yield KNOWN["weight"], lambda method, row: method.weight[row].tolist()
    yield KNOWN["ratio"], lambda method, row: method.ratio[row].tolist()
    yield KNOWN["clipped"], lambda m, row: [*map(clip_state, m.clipped[row].tolist(), m.ratio[row].tolist())]
    if any(method.rejected is not None for method in result.methods):
        yield REJECTED, _rejected
    if entropy is not None:
        yield KNOWN["entropy"], lambda method, row: entropy[row].tolist()
    if lag is not None:
        yield LAG, lambda method, row: lag[row].tolist()


def _rejected(method: MethodPush, row: int) -> Sequence[Number]:
    """0 everywhere for a method that has no correction."""
    return (torch.zeros_like(method.push) if method.rejected is None else method.rejected.double())[row].tolist()


def _notes(result: Explanation, rows: Sequence[int]) -> Iterator[str]:
    responses = result.recording.responses
    if len(rows) < len(responses):
        yield f"Drawn are {len(rows)} of {len(responses):,} responses; the shares are over all of them."
    if len(result.methods) > MOST_METHODS:
        yield f"Tokens are drawn for the first {MOST_METHODS} of {len(result.methods)} methods."
    if long := sum(len(responses[row].tokens) > HEAD + TAIL for row in rows):
        yield f"Of {long} long responses the first {HEAD} and the last {TAIL} tokens are drawn."

"""explain.html: the explanation as one file that loads nothing, runs nothing and can be mailed.

The tokens of some responses are drawn once for each method, side by side.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ...records.metrics import Number
from ..page import frame
from ..page.text import paragraph, shortened, visible
from ..page.tokens import (
    HEAD,
    KNOWN,
    PROMPT_LIMIT,
    TAIL,
    DrawnResponse,
    Quantity,
    Scale,
    clip_state,
    draw_tokens,
    kept,
    scales,
)
from .explanation import SHADES, Explanation, MethodPush

HERE = Path(__file__).parent
MOST_METHODS = 12
MOST_TOKENS = 24_000  # drawn over all responses and methods
PUSH = Quantity(
    "push", "push", "signed", "−M ∂L/∂lp: blue is made more likely, orange less likely, white is left alone"
)
REJECTED = Quantity(
    "rejected", "rejected", "unsigned", "1 where the correction for the policy that sampled drops the token"
)
LAG = Quantity(
    "lag", "lag", "unsigned", "updates between the policy that sampled the token and the newest that sampled one"
)


@dataclass(frozen=True)
class Drawn:
    """The tokens that the page draws; `fixed` are (quantity, value) of quantities that do not vary."""

    scales: tuple[Scale, ...]
    views: tuple[str, ...]
    cards: tuple[DrawnResponse, ...]
    fixed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def render(result: Explanation, responses: int = 8) -> str:
    """The page as text, with the tokens of at most `responses` responses. Equal recordings give equal bytes."""
    drawn = draw_responses(result, responses)
    shares, *cosines = result.tables
    return frame.render(
        HERE / "explain.html", visible(result.title, limit=200), rules=_rules(drawn),
        source=visible(result.recording.source, limit=300),
        notes=[visible(note, limit=1000) for note in (*result.notes, *drawn.notes)],
        refused=[visible(reason, limit=1000) for _, reason in result.refused], legend=result.legend, shares=shares,
        cosines=cosines, drawn=drawn,
        named=[(shortened(m.label), paragraph(str(m.objective), limit=5000)) for m in result.methods],
    )  # fmt: skip


def _rules(drawn: Drawn) -> Iterator[str]:
    """The style rules of this page only: shades of cosines, colours per quantity, methods, columns of the readout."""
    for i in range(SHADES):
        yield f".m{i}{{background:var(--d{i});color:var(--dt{i})}}"
    for i, scale in enumerate(drawn.scales):
        yield from scale.rules(i)
    for i in range(len(drawn.views)):
        yield f":root:not(:has(#s{i}:checked)) .view-{i}{{display:none}}"
    columns = len(drawn.scales) + 1
    for i in range(columns):
        both = f".view .tokens tr:hover td:nth-of-type({i + 1}),.readout b:nth-of-type({i + 1})"
        yield f"{both}{{left:{100 * i / columns:.2f}%}}"


def draw_responses(result: Explanation, most: int) -> Drawn:
    """The tokens of at most `most` responses, in the order of the file."""
    methods, responses = result.methods[:MOST_METHODS], result.recording.responses
    rows, budget = [], MOST_TOKENS
    for row in chosen(result)[:most]:  # as many as fit on the page, and at least one
        cost = len(methods) * len(kept(len(responses[row].tokens)))
        if cost <= budget or not rows:
            rows.append(row)
            budget -= cost
    rows.sort()
    numbers = {(row, method.label): _numbers(result, method, row) for row in rows for method in methods}
    drawn: dict[Quantity, list[Number]] = defaultdict(list)
    for (row, _), of_quantities in numbers.items():
        for q, values in of_quantities.items():
            drawn[q] += [values[t] for t in kept(len(responses[row].tokens))]
    varying, fixed = scales(drawn.items())

    def card(row: int) -> DrawnResponse:
        response = responses[row]
        views = tuple(
            draw_tokens(response.tokens, [(s, numbers[row, method.label][s.quantity]) for s in varying])
            for method in methods
        )
        return DrawnResponse(
            row=row, group=visible(str(response.group), limit=60), length=len(response.tokens), reward=response.reward,
            correct=response.correct, prompt=paragraph(response.prompt, limit=PROMPT_LIMIT), answer="", views=views,
        )  # fmt: skip

    names = tuple(shortened(method.label) for method in methods)
    return Drawn(tuple(varying), names, tuple(map(card, rows)), tuple(fixed), tuple(_notes(result, rows)))


def chosen(result: Explanation) -> list[int]:
    """Rows in the order in which they are worth reading: the responses with the highest and the lowest reward of each
    group, groups with different rewards first; then all others."""
    responses = result.recording.responses
    groups: dict[int | str, list[int]] = defaultdict(list)
    for row, response in enumerate(responses):
        if response.tokens:
            groups[response.group].append(row)
    ranked = [sorted(rows, key=lambda row: -responses[row].reward) for rows in groups.values()]
    ends = [(rows[0], rows[-1]) for rows in ranked]
    ends.sort(key=lambda pair: responses[pair[0]].reward == responses[pair[1]].reward)
    return [*dict.fromkeys(row for rows in (*ends, *groups.values()) for row in rows)]


def _numbers(result: Explanation, method: MethodPush, row: int) -> dict[Quantity, list[Number]]:
    """[T] numbers of every quantity: first the method's, then entropy and lag, which all methods share."""
    dropped = method.rejected
    if dropped is None and any(other.rejected is not None for other in result.methods):
        dropped = torch.zeros_like(method.push)
    own = {KNOWN[name]: getattr(method, name) for name in ("advantage", "weight", "ratio", "clipped")}
    tensors = {
        PUSH: method.push,
        **own,
        REJECTED: dropped,
        KNOWN["entropy"]: result.recording.entropy,
        LAG: result.recording.lag,
    }
    numbers = {q: values[row].double().tolist() for q, values in tensors.items() if values is not None}
    numbers[KNOWN["clipped"]] = [*map(clip_state, numbers[KNOWN["clipped"]], numbers[KNOWN["ratio"]])]
    return numbers


def _notes(result: Explanation, rows: Sequence[int]) -> Iterator[str]:
    responses = result.recording.responses
    if len(rows) < len(responses):
        yield f"Drawn are {len(rows)} of {len(responses):,} responses; the shares are over all of them."
    if len(result.methods) > MOST_METHODS:
        yield f"Tokens are drawn for the first {MOST_METHODS} of {len(result.methods)} methods."
    if long := sum(len(responses[row].tokens) > HEAD + TAIL for row in rows):
        yield f"Of {long} long responses the first {HEAD} and the last {TAIL} tokens are drawn."

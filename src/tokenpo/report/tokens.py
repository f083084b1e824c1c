"""The token browser: which rollouts of which steps are drawn, within a budget of bytes, and what each token shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import escape

from .record import Number, Rollout, Trace
from .scale import QUANTITIES, Scale, clip_state, quantity, scale
from .text import number, paragraph, visible

MOST_STEPS, MOST_ROLLOUTS, MOST_QUANTITIES = 8, 8, 14
HEAD, TAIL = 400, 200  # tokens drawn of a longer response
TOKEN_LIMIT, PROMPT_LIMIT = 60, 2_000  # characters
BUDGET = 1_200_000  # bytes that all tokens may take


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


@dataclass(frozen=True)
class Browser:
    """`steps` maps a step to its cards; `chosen` are the steps shown first; `fixed` are quantities without variation.

    `remarks` says of a step what its colours alone would hide.
    """

    scales: tuple[Scale, ...]
    default: int
    steps: Mapping[int, tuple[Card, ...]]
    chosen: tuple[int, ...]
    remarks: Mapping[int, str]
    fixed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    rollouts: int
    tokens: int


def browse(trace: Trace) -> Browser | None:
    """The browser of a trace, or None when it holds no rollout."""
    if not trace.index:
        return None
    chosen = _spread(sorted({step for step, _ in trace.index}), MOST_STEPS)
    drawn = _load(trace, chosen)
    names = _names(drawn)
    values = {name: [x for rollout in drawn for x in _term(rollout, name)] for name in names}
    fixed = {name: xs[0] for name, xs in values.items() if len(set(xs)) == 1}
    varying = [name for name in names if name not in fixed]
    scales = tuple(
        scale(quantity(name, [x for x in values[name] if x is not None]), chr(ord("a") + i), values[name])
        for i, name in enumerate(varying[:MOST_QUANTITIES])
    )
    steps = {step: tuple(_card(r, scales) for r in drawn if r.step == step) for step in chosen}
    steps = {step: cards for step, cards in steps.items() if cards}
    return Browser(
        scales=scales,
        default=_default(scales, drawn),
        steps=steps,
        chosen=tuple(dict.fromkeys([min(steps), max(steps)])),
        remarks={step: _remark([card.rollout for card in cards]) for step, cards in steps.items()},
        fixed=tuple((quantity(name, []).label, _format(name, x)) for name, x in fixed.items()),
        notes=tuple(_notes(trace, drawn, varying)),
        rollouts=len(drawn),
        tokens=sum(len(r.tokens) for r in drawn),
    )


def _spread(items: Sequence[int], most: int) -> list[int]:
    """First, last and evenly between."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _load(trace: Trace, steps: Sequence[int]) -> list[Rollout]:
    """The rollouts to draw, in page order. The last and first steps are served first, then in turn one of each step."""
    offsets = {step: [o for s, o in trace.index if s == step][:MOST_ROLLOUTS] for step in steps}
    priority = [*dict.fromkeys([steps[-1], steps[0], *steps])]
    drawn: dict[tuple[int, int], Rollout] = {}
    left = BUDGET
    for turn in range(MOST_ROLLOUTS):
        for step in priority:
            if turn < len(offsets[step]):
                rollout = trace.load(offsets[step][turn])
                cost = _cost(rollout)
                if cost <= left or not drawn:
                    left -= cost
                    drawn[step, turn] = rollout
    return [drawn[key] for key in sorted(drawn)]


def _cost(rollout: Rollout) -> int:
    """About how many bytes the page needs for it; a shown mark of one character may take ten."""
    per_token = 45 + 14 * min(len(rollout.terms), MOST_QUANTITIES)
    texts = [rollout.tokens[t] for t in _kept(len(rollout.tokens))]
    written = "".join([_prompt(rollout), *(_text(text) for text in texts)])
    return 1_500 + len(escape(written).encode()) + len(texts) * per_token


def _names(drawn: Sequence[Rollout]) -> list[str]:
    """The recorded quantities: those the report knows in its own order, then the others."""
    recorded = dict.fromkeys(name for rollout in drawn for name in rollout.terms if rollout.terms[name])
    known = [q.name for q in QUANTITIES if q.name in recorded]
    return known + [name for name in recorded if name not in known]


def _term(rollout: Rollout, name: str) -> Sequence[Number]:
    """[T] numbers of one quantity; None throughout where this rollout lacks it."""
    nothing = (None,) * len(rollout.tokens)
    values = rollout.terms.get(name, nothing)
    if name != "clipped":
        return values
    return [clip_state(c, r) for c, r in zip(values, rollout.terms.get("ratio", nothing), strict=True)]


def _default(scales: Sequence[Scale], drawn: Sequence[Rollout]) -> int:
    """Advantage where it tells tokens of one response apart; else entropy, which always does; else the first."""
    order = {s.quantity.name: i for i, s in enumerate(scales)}
    if "advantage" in order and any(len(set(_term(r, "advantage"))) > 1 for r in drawn):
        return order["advantage"]
    return order.get("entropy", 0)


def _card(rollout: Rollout, scales: Sequence[Scale]) -> Card:
    columns = [_term(rollout, s.quantity.name) for s in scales]
    tokens = []
    last = -1
    for t in _kept(len(rollout.tokens)):
        values = [column[t] for column in columns]
        tokens.append(
            Token(
                position=t + 1,
                text=_text(rollout.tokens[t]),
                classes=" ".join(s.level(x) for s, x in zip(scales, values, strict=True)),
                values=tuple(_format(s.quantity.name, x) for s, x in zip(scales, values, strict=True)),
                breaks="\n" in rollout.tokens[t],
                gap=t - last - 1,
            )
        )
        last = t
    return Card(rollout, _prompt(rollout), visible(rollout.answer, limit=200), tuple(tokens))


def _text(token: str) -> str:
    return visible(token, limit=TOKEN_LIMIT, spaces=True) or "∅"


def _prompt(rollout: Rollout) -> str:
    return paragraph(rollout.prompt, limit=PROMPT_LIMIT)


def _remark(rollouts: Sequence[Rollout]) -> str:
    """Why a step may be colourless: advantages that are all 0, and the cause as far as its rewards show it."""
    advantages = {x for rollout in rollouts for x in rollout.terms.get("advantage", ())}
    if advantages != {0.0}:
        return ""
    rewards: dict[int | None, set[Number]] = {}
    for rollout in rollouts:
        rewards.setdefault(rollout.group, set()).add(rollout.reward)
    alike = all(len(values) == 1 for values in rewards.values())
    return "all advantages are 0 here" + (": every answer of these groups got the same reward" if alike else "")


def _kept(length: int) -> Iterator[int]:
    if length <= HEAD + TAIL:
        yield from range(length)
    else:
        yield from range(HEAD)
        yield from range(length - TAIL, length)


def _format(name: str, x: Number) -> str:
    if name == "clipped" and x is not None:
        return ("no", "below", "above")[int(x)]
    return number(x)


def _notes(trace: Trace, drawn: Sequence[Rollout], varying: Sequence[str]) -> Iterator[str]:
    if len(drawn) < len(trace.index):
        steps = len({step for step, _ in trace.index})
        shown = len({r.step for r in drawn})
        count = f"{len(drawn)} of {len(trace.index):,} recorded responses, from {shown} of {steps:,} steps"
        yield f"Drawn are {count}; trace.jsonl holds them all."
    long = sum(len(r.tokens) > HEAD + TAIL for r in drawn)
    if long:
        kept = f"their first {HEAD} and last {TAIL} tokens are drawn"
        yield f"{long} responses are longer than {HEAD + TAIL} tokens: {kept}."
    if len(varying) > MOST_QUANTITIES:
        yield "Left out for size: " + ", ".join(visible(name, limit=30) for name in varying[MOST_QUANTITIES:]) + "."

"""The browser over steps, prompts and responses: what is drawn, within a budget of bytes, and what is shown first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...runs.read import Number, Rollout, Trace
from ..page.scale import EXPECTED, Scale, quantity, scale
from ..page.text import visible
from ..page.tokens import HEAD, LABEL_LIMIT, TAIL, Card, card, kept, prompt_text, quantities, shown, term, token_text

MOST_STEPS, MOST_ROLLOUTS, MOST_QUANTITIES = 64, 16, 14
BUDGET = 1_000_000  # bytes that all tokens may take
FIRST = 150_000  # bytes that one side of the first view may take beyond its first response


@dataclass(frozen=True)
class Group:
    """A prompt of one step and the responses to it."""

    prompt: str
    label: str
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Step:
    """`remark` says what the colours alone would hide."""

    number: int
    remark: str
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Source:
    """A run: its name on this page, its steps, and the labels of what its trace lacks."""

    label: str
    steps: tuple[Step, ...]
    lacks: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """What one side shows: indices of run, step, prompt and response; response None is all of the prompt's."""

    run: int
    step: int
    prompt: int
    response: int | None = None


@dataclass(frozen=True)
class Browser:
    """`views` are the sides of the first view, one or two; `fixed` are quantities without variation."""

    scales: tuple[Scale, ...]
    default: int
    sources: tuple[Source, ...]
    views: tuple[View, ...]
    fixed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    rollouts: int
    tokens: int

    def cards(self, view: View) -> tuple[Card, ...]:
        """The responses that a view shows."""
        cards = self.group(view).cards
        return cards if view.response is None else cards[view.response : view.response + 1]

    def group(self, view: View) -> Group:
        return self.sources[view.run].steps[view.step].groups[view.prompt]


def browse(traces: Sequence[tuple[str, Trace]]) -> Browser | None:
    """The browser of one trace or of several beside each other; None when they hold no rollout.

    Args:
        traces: (name of the run, its trace). All share one scale per quantity.
    """
    traces = [(label, trace) for label, trace in traces if trace.index]
    if not traces:
        return None
    drawn = [_load(trace, BUDGET // len(traces)) for _, trace in traces]
    everything = [rollout for rollouts in drawn for rollout in rollouts]
    names = quantities(everything)
    values = {name: [x for rollout in everything for x in term(rollout, name)] for name in names}
    fixed = {name: xs[0] for name, xs in values.items() if len(set(xs)) == 1}
    varying = [name for name in names if name not in fixed]
    scales = tuple(
        scale(quantity(name, [x for x in values[name] if x is not None]), chr(ord("a") + i), values[name])
        for i, name in enumerate(varying[:MOST_QUANTITIES])
    )
    sources = tuple(_source(label, rollouts, scales) for (label, _), rollouts in zip(traces, drawn, strict=True))
    notes = [
        note
        for (label, trace), rollouts in zip(traces, drawn, strict=True)
        for note in _notes(label, trace, rollouts, named=len(traces) > 1)
    ]
    return Browser(
        scales=scales,
        default=_default(scales, everything),
        sources=sources,
        views=tuple(_views(sources)),
        fixed=tuple((quantity(name, []).label, shown(name, x)) for name, x in fixed.items()),
        notes=tuple(notes) + _left_out(varying[MOST_QUANTITIES:]),
        rollouts=len(everything),
        tokens=sum(len(r.tokens) for r in everything),
    )


def _load(trace: Trace, budget: int) -> list[Rollout]:
    """The rollouts to draw, in page order. The last and first steps are served first, then in turn one of each step."""
    steps = _spread(sorted({step for step, _ in trace.index}), MOST_STEPS)
    offsets = {step: [o for s, o in trace.index if s == step][:MOST_ROLLOUTS] for step in steps}
    priority = [*dict.fromkeys([steps[-1], steps[0], *steps])]
    loaded: dict[tuple[int, int], Rollout] = {}
    bytes_left = budget
    for turn in range(MOST_ROLLOUTS):
        for step in priority:
            # Long after the budget is spent, reading on would find at best a response of a few tokens.
            if turn < len(offsets[step]) and (bytes_left > budget // 100 or not loaded):
                rollout = trace.load(offsets[step][turn])
                cost = _cost(rollout)
                if cost <= bytes_left or not loaded:
                    bytes_left -= cost
                    loaded[step, turn] = rollout
    return [loaded[key] for key in sorted(loaded)]


def _spread(items: Sequence[int], most: int) -> list[int]:
    """First, last and evenly between."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _cost(rollout: Rollout) -> int:
    """About how many bytes the data of the page need for it."""
    texts = [token_text(rollout.tokens[t]) for t in kept(len(rollout.tokens))]
    # Twice for the marks that JSON in a page escapes once more.
    written = len(json.dumps([prompt_text(rollout), *texts], ensure_ascii=False).encode()) * 2
    return 600 + written + len(texts) * 8 * min(len(rollout.terms), MOST_QUANTITIES)


def _source(label: str, rollouts: Sequence[Rollout], scales: Sequence[Scale]) -> Source:
    steps = []
    for step in dict.fromkeys(rollout.step for rollout in rollouts):
        of_step = [rollout for rollout in rollouts if rollout.step == step]
        keys = dict.fromkeys((rollout.group, rollout.prompt) for rollout in of_step)
        cards = [tuple(card(r, scales) for r in of_step if (r.group, r.prompt) == key) for key in keys]
        groups = tuple(
            Group(
                group_cards[0].prompt,
                f"{i + 1}: {visible(group_cards[0].rollout.prompt, limit=LABEL_LIMIT)}",
                group_cards,
            )
            for i, group_cards in enumerate(cards)
        )
        steps.append(Step(step, _remark(of_step), groups))
    recorded = quantities(rollouts)
    lacks = tuple(quantity(name, []).label for name in EXPECTED if name not in recorded)
    return Source(label, tuple(steps), lacks)


def _views(sources: Sequence[Source]) -> Iterator[View]:
    """Two runs at the first prompt that both have; else the first and the last step; else two responses; else one."""
    for view in _places(sources):
        cards = sources[view.run].steps[view.step].groups[view.prompt].cards
        bulk = sum(150 + (45 + 14 * len(c.tokens[0].values)) * len(c.tokens) for c in cards[1:] if c.tokens)
        small = bulk + sum(len(t.text) for c in cards[1:] for t in c.tokens) <= FIRST
        yield view if small or view.response is not None else View(view.run, view.step, view.prompt, 0)


def _places(sources: Sequence[Source]) -> list[View]:
    first = sources[0]
    if len(sources) > 1:
        return next(
            _shared(first, sources[1]), [View(0, 0, _live(first.steps[0])), View(1, 0, _live(sources[1].steps[0]))]
        )
    start, end = first.steps[0], first.steps[-1]
    only = start.groups[0]
    if len(first.steps) > 1:
        return [View(0, 0, _live(start)), View(0, len(first.steps) - 1, _live(end))]
    if len(start.groups) > 1:
        return [View(0, 0, 0), View(0, 0, 1)]
    if len(only.cards) > 1:
        return [View(0, 0, 0, 0), View(0, 0, 0, 1)]
    return [View(0, 0, 0)]


def _shared(first: Source, second: Source) -> Iterator[list[View]]:
    """The places of prompts that both runs answered at the same step."""
    numbers = {step.number: i for i, step in enumerate(second.steps)}
    for i, step in enumerate(first.steps):
        position = numbers.get(step.number)
        prompts = [group.prompt for group in second.steps[position].groups] if position is not None else []
        for k, group in enumerate(step.groups):
            if position is not None and group.prompt in prompts:
                yield [View(0, i, k), View(1, position, prompts.index(group.prompt))]


def in_common(browser: Browser) -> tuple[int, int]:
    """(prompts that both runs answered at the same step, prompts of the first run)."""
    first, second = browser.sources[:2]
    return sum(1 for _ in _shared(first, second)), sum(len(step.groups) for step in first.steps)


def _live(step: Step) -> int:
    """The first prompt whose responses have an advantage, else the first."""
    for k, group in enumerate(step.groups):
        if any(x for c in group.cards for x in c.rollout.terms.get("advantage", ())):
            return k
    return 0


def _default(scales: Sequence[Scale], drawn: Sequence[Rollout]) -> int:
    """Advantage where it tells tokens of one response apart; else entropy, which always does; else the first."""
    order = {s.quantity.name: i for i, s in enumerate(scales)}
    if "advantage" in order and any(len(set(term(r, "advantage"))) > 1 for r in drawn):
        return order["advantage"]
    return order.get("entropy", 0)


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


def _notes(label: str, trace: Trace, drawn: Sequence[Rollout], *, named: bool) -> Iterator[str]:
    whose = f" of {label}" if named else ""
    if len(drawn) < len(trace.index):
        steps = len({step for step, _ in trace.index})
        taken = len({r.step for r in drawn})
        count = f"{len(drawn)} of {len(trace.index):,} recorded responses{whose}, from {taken} of {steps:,} steps"
        yield f"Drawn are {count}; trace.jsonl holds them all."
    long = sum(len(r.tokens) > HEAD + TAIL for r in drawn)
    if long:
        some = f"their first {HEAD} and last {TAIL} tokens are drawn"
        yield f"{long} responses{whose} are longer than {HEAD + TAIL} tokens: {some}."


def _left_out(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return ("Left out for size: " + ", ".join(visible(name, limit=30) for name in names) + ".",)

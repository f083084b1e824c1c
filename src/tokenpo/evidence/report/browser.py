"""The browser over steps, prompts and responses: the rollouts that fit a budget of bytes, and the first view."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ...page.scale import EXPECTED, QUANTITIES, Scale, clip_state, quantity, scales
from ...page.text import paragraph, visible
from ...page.tokens import HEAD, LABEL_LIMIT, PROMPT_LIMIT, TAIL, DrawnResponse, draw_tokens, kept, token_text
from ...runs.metrics import Number
from ...runs.read import Rollout, Trace

MOST_STEPS, MOST_ROLLOUTS, MOST_QUANTITIES = 64, 16, 14
BUDGET = 1_000_000  # bytes that all tokens may take
FIRST = 150_000  # bytes that one side of the first view may take beyond its first response
# Inside a script element only these could end it or open another; JSON can spell them out.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}


@dataclass(frozen=True)
class DrawnPrompt:
    """A prompt of one step and the responses to it; `live` where one of them has an advantage."""

    text: str
    label: str
    cards: tuple[DrawnResponse, ...]
    live: bool


@dataclass(frozen=True)
class DrawnStep:
    """`remark` says what the colours alone would hide."""

    number: int
    remark: str
    prompts: tuple[DrawnPrompt, ...]

    @property
    def live(self) -> int:
        """The first prompt whose responses have an advantage, else the first."""
        return next((place for place, prompt in enumerate(self.prompts) if prompt.live), 0)


@dataclass(frozen=True)
class DrawnRun:
    """A run: its name on this page, its steps, and the labels of what its trace lacks."""

    label: str
    steps: tuple[DrawnStep, ...]
    lacks: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """Indices of the run, step, prompt and response that one side shows; response None is all of the prompt's."""

    run: int
    step: int
    prompt: int
    response: int | None = None


@dataclass(frozen=True)
class Browser:
    """`views` are the sides of the first view, one or two; `fixed` are quantities without variation."""

    scales: tuple[Scale, ...]
    default: int
    runs: tuple[DrawnRun, ...]
    views: tuple[View, ...]
    fixed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    rollouts: int
    tokens: int

    def cards(self, view: View) -> tuple[DrawnResponse, ...]:
        """The responses that a view shows."""
        cards = self.prompt(view).cards
        return cards if view.response is None else cards[view.response : view.response + 1]

    def prompt(self, view: View) -> DrawnPrompt:
        return self.runs[view.run].steps[view.step].prompts[view.prompt]


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
    recorded = {name: [x for r in everything for x in _values(r, name)] for name in _quantities(everything)}
    varying, fixed = scales([(quantity(name, values), values) for name, values in recorded.items()])
    kept_scales = varying[:MOST_QUANTITIES]
    runs = tuple(_run(label, rollouts, kept_scales) for (label, _), rollouts in zip(traces, drawn, strict=True))
    notes = [
        note
        for (label, trace), rollouts in zip(traces, drawn, strict=True)
        for note in _notes(label, trace, rollouts, named=len(traces) > 1)
    ]
    if left_out := varying[MOST_QUANTITIES:]:
        notes.append(f"Left out for size: {', '.join(visible(s.quantity.name, limit=30) for s in left_out)}.")
    return Browser(
        scales=tuple(kept_scales),
        default=_default(kept_scales, everything),
        runs=runs,
        views=tuple(_views(runs)),
        fixed=tuple(fixed),
        notes=tuple(notes),
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
    written = len(json.dumps([_prompt_text(rollout.prompt), *texts], ensure_ascii=False).encode()) * 2
    return 600 + written + len(texts) * 8 * min(len(rollout.terms), MOST_QUANTITIES)


def _quantities(drawn: Sequence[Rollout]) -> list[str]:
    """The names of what can be drawn: those the report knows in its own order, then the others."""
    recorded = dict.fromkeys(name for rollout in drawn for name in rollout.terms if rollout.terms[name])
    if "old_logprob" in recorded:
        # Shown as the probability; beside the current log-probability it would say the same thing twice.
        del recorded["old_logprob"]
        recorded["probability"] = None
    known = [q.name for q in QUANTITIES if q.name in recorded]
    return known + [name for name in recorded if name not in known]


def _values(rollout: Rollout, name: str) -> Sequence[Number]:
    """[T] numbers of one quantity; None throughout where this rollout lacks it."""
    nothing = (None,) * len(rollout.tokens)
    values = rollout.terms.get(name, nothing)
    if name == "clipped":
        return [clip_state(c, r) for c, r in zip(values, rollout.terms.get("ratio", nothing), strict=True)]
    if name == "probability" and name not in rollout.terms:
        old = rollout.terms.get("old_logprob", nothing)
        return [None if x is None else math.exp(min(x, 0.0)) for x in old]
    return values


def _run(label: str, rollouts: Sequence[Rollout], scales: Sequence[Scale]) -> DrawnRun:
    steps = []
    for step in dict.fromkeys(rollout.step for rollout in rollouts):
        of_step = [rollout for rollout in rollouts if rollout.step == step]
        prompts: dict[tuple[int | None, str], list[Rollout]] = {}
        for rollout in of_step:
            prompts.setdefault((rollout.group, rollout.prompt), []).append(rollout)
        drawn = [_prompt(i, answered, scales) for i, answered in enumerate(prompts.values(), start=1)]
        steps.append(DrawnStep(step, _remark(of_step), tuple(drawn)))
    recorded = _quantities(rollouts)
    lacks = tuple(quantity(name).label for name in EXPECTED if name not in recorded)
    return DrawnRun(label, tuple(steps), lacks)


def _prompt(number: int, rollouts: Sequence[Rollout], scales: Sequence[Scale]) -> DrawnPrompt:
    text = rollouts[0].prompt
    return DrawnPrompt(
        text=_prompt_text(text),
        label=f"{number}: {visible(text, limit=LABEL_LIMIT)}",
        cards=tuple(_card(rollout, scales) for rollout in rollouts),
        live=any(x for rollout in rollouts for x in rollout.terms.get("advantage", ())),
    )


def _prompt_text(prompt: str) -> str:
    return paragraph(prompt, limit=PROMPT_LIMIT)


def _card(rollout: Rollout, scales: Sequence[Scale]) -> DrawnResponse:
    return DrawnResponse(
        row=rollout.row,
        group="" if rollout.group is None else str(rollout.group),
        length=len(rollout.tokens),
        reward=rollout.reward,
        correct=rollout.correct,
        prompt="",  # stands above all of its responses
        answer=visible(rollout.answer, limit=200),
        views=(draw_tokens(rollout.tokens, [(s, _values(rollout, s.quantity.name)) for s in scales]),),
    )


def _views(runs: Sequence[DrawnRun]) -> Iterator[View]:
    """Two runs at the first prompt that both have; else the first and the last step; else two responses; else one."""
    for view in _places(runs):
        cards = runs[view.run].steps[view.step].prompts[view.prompt].cards
        others = [card.views[0] for card in cards[1:] if card.views[0]]
        bulk = sum(150 + (45 + 14 * len(tokens[0].values)) * len(tokens) for tokens in others)
        small = bulk + sum(len(token.text) for tokens in others for token in tokens) <= FIRST
        yield view if small or view.response is not None else View(view.run, view.step, view.prompt, 0)


def _places(runs: Sequence[DrawnRun]) -> list[View]:
    first = runs[0]
    if len(runs) > 1:
        return next(_shared(first, runs[1]), [View(i, 0, run.steps[0].live) for i, run in enumerate(runs[:2])])
    start, end = first.steps[0], first.steps[-1]
    responses = len(start.prompts[0].cards)
    if len(first.steps) > 1:
        return [View(0, 0, start.live), View(0, len(first.steps) - 1, end.live)]
    if len(start.prompts) > 1:
        return [View(0, 0, 0), View(0, 0, 1)]
    if responses > 1:
        return [View(0, 0, 0, 0), View(0, 0, 0, 1)]
    return [View(0, 0, 0)]


def _shared(first: DrawnRun, second: DrawnRun) -> Iterator[list[View]]:
    """The places of prompts that both runs answered at the same step."""
    numbers = {step.number: i for i, step in enumerate(second.steps)}
    for i, step in enumerate(first.steps):
        position = numbers.get(step.number)
        prompts = [prompt.text for prompt in second.steps[position].prompts] if position is not None else []
        for k, prompt in enumerate(step.prompts):
            if position is not None and prompt.text in prompts:
                yield [View(0, i, k), View(1, position, prompts.index(prompt.text))]


def in_common(browser: Browser) -> tuple[int, int]:
    """(prompts that both runs answered at the same step, prompts of the first run)."""
    first, second = browser.runs[:2]
    return sum(1 for _ in _shared(first, second)), sum(len(step.prompts) for step in first.steps)


def _default(scales: Sequence[Scale], drawn: Sequence[Rollout]) -> int:
    """Advantage where it tells tokens of one response apart; else entropy, which always does; else the first."""
    order = {s.quantity.name: i for i, s in enumerate(scales)}
    if "advantage" in order and any(len(set(_values(r, "advantage"))) > 1 for r in drawn):
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


def embed(browser: Browser) -> Markup:
    """The whole browser as JSON for a script element. Texts are already visible ones; colours are decided here."""

    def step_data(step: DrawnStep) -> dict[str, Any]:
        prompts = [{"text": p.text, "label": p.label, "cards": [*map(_data, p.cards)]} for p in step.prompts]
        return {"number": step.number, "remark": step.remark, "prompts": prompts}

    data = {
        "scales": [
            {"name": visible(s.quantity.name, limit=30), "label": s.quantity.label, "key": s.key}
            for s in browser.scales
        ],
        "runs": [{"label": run.label, "steps": [*map(step_data, run.steps)]} for run in browser.runs],
        "views": [[v.run, v.step, v.prompt, -1 if v.response is None else v.response] for v in browser.views],
    }
    return Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES))


def _data(card: DrawnResponse) -> dict[str, Any]:
    """`levels` and `values` hold one text per scale: a character, or a number and a blank, for each token."""
    tokens = card.views[0]
    levels = [token.classes.split() for token in tokens]
    scales = range(len(tokens[0].values)) if tokens else range(0)
    return {
        **{name: getattr(card, name) for name in ("label", "verdict", "tone", "before", "answer", "after")},
        "tokens": [token.text for token in tokens],
        "breaks": [i for i, token in enumerate(tokens) if token.breaks],
        "gaps": {str(i): [token.position, f"{token.gap:,}"] for i, token in enumerate(tokens) if token.gap},
        "levels": [_short([level[k][1:] for level in levels], "") for k in scales],
        "values": [_short([token.values[k] for token in tokens], " ") for k in scales],
    }


def _short(texts: Sequence[str], between: str) -> str:
    """The texts joined; a single one stands for all where they are equal."""
    return texts[0] if len(set(texts)) == 1 else between.join(texts)

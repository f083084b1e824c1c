"""The report's browser over steps, prompts and responses: rollouts within a budget of bytes, for report.js to draw."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ...records.metrics import Number
from ...records.run import Rollout, Trace
from ..page.text import paragraph, visible
from ..page.tokens import (
    HEAD,
    KNOWN,
    LABEL_LIMIT,
    PROMPT_LIMIT,
    TAIL,
    DrawnResponse,
    Scale,
    clip_state,
    draw_tokens,
    kept,
    scales,
    token_text,
)

MOST_STEPS, MOST_ROLLOUTS = 64, 16
BUDGET = 1_000_000  # bytes for all tokens
# Only these characters could end a script element or open another; JSON can escape them.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}


@dataclass(frozen=True)
class DrawnPrompt:
    text: str
    label: str
    cards: tuple[DrawnResponse, ...]


@dataclass(frozen=True)
class DrawnStep:
    """A step: `remark` is the reason if it has no colours; `live` is its first prompt with an advantage, else 0."""

    number: int
    remark: str
    prompts: tuple[DrawnPrompt, ...]
    live: int


@dataclass(frozen=True)
class Browser:
    """The browser; `fixed` are quantities that do not vary."""

    scales: tuple[Scale, ...]
    default: int
    steps: tuple[DrawnStep, ...]
    fixed: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    rollouts: int
    tokens: int

    @property
    def blank(self) -> DrawnResponse:
        """What the script fills in."""
        return DrawnResponse(0, "", 0, None, None, prompt="", answer="", views=((),))


def browse(trace: Trace) -> Browser | None:
    """The browser of a trace; None if it holds no rollout."""
    if not trace.index:
        return None
    rollouts = _load(trace, BUDGET)
    # The probability stands for the old log-probability, which nearly repeats the current one.
    traced = {"probability" if name == "old_logprob" else name for r in rollouts for name in r.terms if r.terms[name]}
    named = [name for name in KNOWN if name in traced]
    shown, fixed = scales((KNOWN[name], [x for r in rollouts for x in _values(r, name)]) for name in named)
    steps = _steps(rollouts, shown)
    # Advantage if it differs between tokens of one response; else entropy, which always does; else the first.
    names = [s.quantity.name for s in shown]
    differs = "advantage" in names and any(len(set(_values(r, "advantage"))) > 1 for r in rollouts)
    first = "advantage" if differs else "entropy"
    return Browser(
        tuple(shown), names.index(first) if first in names else 0, steps, fixed=tuple(fixed),
        notes=tuple(_notes(trace, rollouts)), rollouts=len(rollouts), tokens=sum(len(r.tokens) for r in rollouts),
    )  # fmt: skip


def _load(trace: Trace, budget: int) -> list[Rollout]:
    """The rollouts to draw, in page order: one of each step in turn, the last and the first step first."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for step, offset in trace.index:
        offsets[step].append(offset)
    steps, loaded = sorted(offsets), dict[tuple[int, int], Rollout]()
    if len(steps) > MOST_STEPS:  # first, last and evenly between
        steps = [steps[round(i * (len(steps) - 1) / (MOST_STEPS - 1))] for i in range(MOST_STEPS)]
    spent = budget // 100
    for turn in range(MOST_ROLLOUTS):
        for step in dict.fromkeys([steps[-1], steps[0], *steps]):
            # With so little left, only a response of a few tokens would fit.
            if turn < len(offsets[step]) and (budget > spent or not loaded):
                rollout = trace.load(offsets[step][turn])
                if (cost := _cost(rollout)) <= budget or not loaded:
                    budget -= cost
                    loaded[step, turn] = rollout
    return [loaded[key] for key in sorted(loaded)]


def _cost(rollout: Rollout) -> int:
    """The approximate bytes that a rollout takes in the page's data."""
    texts = [token_text(rollout.tokens[t]) for t in kept(len(rollout.tokens))]
    prompt = paragraph(rollout.prompt, limit=PROMPT_LIMIT)
    # Twice, because JSON in a page escapes some characters again.
    written = len(json.dumps([prompt, *texts], ensure_ascii=False).encode()) * 2
    return 600 + written + len(texts) * 8 * len(KNOWN)


def _values(rollout: Rollout, name: str) -> Sequence[Number]:
    """[T] numbers of one quantity; all None if this rollout lacks it."""
    nothing = (None,) * len(rollout.tokens)
    values = rollout.terms.get(name, nothing)
    if name == "clipped":
        return [*map(clip_state, values, rollout.terms.get("ratio", nothing))]
    if name == "probability" and name not in rollout.terms:
        old = rollout.terms.get("old_logprob", nothing)
        return [None if x is None else math.exp(min(x, 0.0)) for x in old]
    return values


def _steps(rollouts: Sequence[Rollout], scales: Sequence[Scale]) -> tuple[DrawnStep, ...]:
    answers: dict[int, dict[Any, list[Rollout]]] = defaultdict(lambda: defaultdict(list))
    for rollout in rollouts:
        answers[rollout.step][rollout.group, rollout.prompt].append(rollout)
    steps = []
    for number, of_prompts in answers.items():
        prompts = [
            DrawnPrompt(
                paragraph(of_prompt[0].prompt, limit=PROMPT_LIMIT),
                f"{place}: {visible(of_prompt[0].prompt, limit=LABEL_LIMIT)}",
                tuple(_card(rollout, scales) for rollout in of_prompt),
            )
            for place, of_prompt in enumerate(of_prompts.values(), start=1)
        ]
        live = [any(x for r in of_prompt for x in r.terms.get("advantage", ())) for of_prompt in of_prompts.values()]
        remark = _remark([rollout for rollout in rollouts if rollout.step == number])
        steps.append(DrawnStep(number, remark, tuple(prompts), live.index(True) if any(live) else 0))
    return tuple(steps)


def _card(rollout: Rollout, scales: Sequence[Scale]) -> DrawnResponse:
    return DrawnResponse(
        row=rollout.row, group="" if rollout.group is None else str(rollout.group), length=len(rollout.tokens),
        reward=rollout.reward, correct=rollout.correct, prompt="",  # shown once, above all its responses
        answer=visible(rollout.answer or "", limit=200),
        views=(draw_tokens(rollout.tokens, [(s, _values(rollout, s.quantity.name)) for s in scales]),),
    )  # fmt: skip


def _remark(rollouts: Sequence[Rollout]) -> str:
    """The reason if a step has no colours: advantages are all 0, and perhaps because rewards are equal."""
    if {x for rollout in rollouts for x in rollout.terms.get("advantage", ())} != {0.0}:
        return ""
    rewards: dict[int | None, set[Number]] = defaultdict(set)
    for rollout in rollouts:
        rewards[rollout.group].add(rollout.reward)
    equal = all(len(values) == 1 for values in rewards.values())
    return "all advantages are 0 here" + (": every answer of these groups got the same reward" if equal else "")


def _notes(trace: Trace, drawn: Sequence[Rollout]) -> Iterator[str]:
    if len(drawn) < len(trace.index):
        steps, taken = len({step for step, _ in trace.index}), len({r.step for r in drawn})
        count = f"{len(drawn)} of {len(trace.index):,} recorded responses, from {taken} of {steps:,} steps"
        yield f"Drawn are {count}; trace.jsonl holds them all."
    if long := sum(len(r.tokens) > HEAD + TAIL for r in drawn):
        some = f"their first {HEAD} and last {TAIL} tokens are drawn"
        yield f"{long} responses are longer than {HEAD + TAIL} tokens: {some}."


def embed(browser: Browser) -> Markup:
    """The whole browser as JSON for a script element; texts are already escaped, and colours already chosen."""
    scales = [{"name": s.quantity.name, "label": s.quantity.label, "key": s.key} for s in browser.scales]
    text = json.dumps(
        {"scales": scales, "steps": browser.steps},
        default=lambda x: _data(x) if isinstance(x, DrawnResponse) else vars(x),
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return Markup(text.translate(_ESCAPES))


def _data(card: DrawnResponse) -> dict[str, Any]:
    """A response's data; `levels` and `values` have one text per scale: per token a character, or number and blank."""
    tokens = card.views[0]
    levels = zip(*([name[1:] for name in token.classes.split()] for token in tokens), strict=True)
    values = zip(*(token.values for token in tokens), strict=True)
    return {
        **card.texts(),
        "tokens": [token.text for token in tokens],
        "breaks": [i for i, token in enumerate(tokens) if token.breaks],
        "gaps": {str(i): [token.position, f"{token.gap:,}"] for i, token in enumerate(tokens) if token.gap},
        "levels": [_short(of_scale, "") for of_scale in levels],
        "values": [_short(of_scale, " ") for of_scale in values],
    }


def _short(texts: Sequence[str], between: str) -> str:
    """The texts joined, or only one of them if all are equal."""
    return texts[0] if len(set(texts)) == 1 else between.join(texts)

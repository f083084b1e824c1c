"""What the page's script reads: the tokens as JSON that cannot end its element, small enough to mail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from ..page.text import visible
from ..page.tokens import Card
from .browser import Browser

# Inside a script element only these could end it or open another; JSON can spell them out.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}


def embed(browser: Browser) -> Markup:
    """The whole browser as JSON for a script element. Texts are already visible ones; colours are decided here."""
    data = {
        "scales": [
            {"name": visible(s.quantity.name, limit=30), "label": s.quantity.label, "key": s.key}
            for s in browser.scales
        ],
        "runs": [
            {
                "label": source.label,
                "steps": [
                    {
                        "number": step.number,
                        "remark": step.remark,
                        "prompts": [
                            {"text": group.prompt, "label": group.label, "cards": [_card(c) for c in group.cards]}
                            for group in step.groups
                        ],
                    }
                    for step in source.steps
                ],
            }
            for source in browser.sources
        ],
        "views": [[v.run, v.step, v.prompt, -1 if v.response is None else v.response] for v in browser.views],
    }
    return Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES))


def _card(card: Card) -> dict[str, Any]:
    """`levels` and `values` hold one text per scale: a character, or a number and a blank, for each token."""
    tokens = card.tokens
    levels = [token.classes.split() for token in tokens]
    scales = range(len(tokens[0].values)) if tokens else range(0)
    return {
        "label": card.label,
        "verdict": card.verdict,
        "tone": card.tone,
        "before": card.before,
        "answer": card.answer,
        "after": card.after,
        "tokens": [token.text for token in tokens],
        "breaks": [i for i, token in enumerate(tokens) if token.breaks],
        "gaps": {str(i): [token.position, f"{token.gap:,}"] for i, token in enumerate(tokens) if token.gap},
        "levels": [_short([level[k][1:] for level in levels], "") for k in scales],
        "values": [_short([token.values[k] for token in tokens], " ") for k in scales],
    }


def _short(texts: Sequence[str], between: str) -> str:
    """The texts joined; a single one stands for all where they are equal."""
    return texts[0] if len(set(texts)) == 1 else between.join(texts)

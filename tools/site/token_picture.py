"""docs/tokens.svg: how several methods push each token of a right and of a wrong response of docs/rollouts.jsonl."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from drawing import COLOURS, svg, text
from torch import Tensor

import tokenpo
from tokenpo.lab.explain.explanation import push_of
from tokenpo.records import read

ROLLOUTS = Path(__file__).resolve().parents[2] / "docs" / "rollouts.jsonl"
METHODS = ("grpo", "gtpo", "tr_grpo", "hapo", "forking_tokens")
RIGHT, WRONG = 10, 9  # two responses to one prompt
LABEL, COLUMN, ROW, EDGE, GAP = 124, 21, 24, 12, 20
NONE = "#808890", 0.0  # a ground and how much of it: the ink is the reader's
GREY = [("#808890", share) for share in (0.0, 0.25, 0.5, 0.75)]  # entropy, from 0 to 1.5 nats and more
STYLE = """\
text { font: 14px system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: #16181a }
.token { font-family: ui-monospace, "DejaVu Sans Mono", monospace; text-anchor: middle } .head { fill: #55636f }"""


def drawing() -> str:
    """The picture as text: two blocks, in each a row of entropies and one for every method."""
    recording = read(ROLLOUTS).at_first_update()
    mask, entropy = recording.rollouts.mask, recording.entropy
    assert entropy is not None and recording.correct[RIGHT] and recording.correct[WRONG] is False
    pushes = {name: push_of(name, tokenpo.method(name), recording).push for name in METHODS}
    width = 2 * EDGE + LABEL + COLUMN * int(mask[[RIGHT, WRONG]].sum(1).max())
    parts, y = [], EDGE
    for response, verdict in ((RIGHT, "A right answer"), (WRONG, "A wrong answer")):
        of = recording.responses[response]
        tokens = ["⏎" if str(token).startswith("<") else str(token) for token in of.tokens]
        parts.append(text(EDGE, y + 15, f"{verdict} to {of.prompt}", "head"))
        y += ROW
        rows = {"entropy": [GREY[min(3, round(2 * x))] for x in _row(entropy, mask, response)]}
        rows |= {name: [_colour(x) for x in _row(push, mask, response)] for name, push in pushes.items()}
        for name, colours in rows.items():
            parts += _line(name, tokens, colours, y)
            y += ROW
        y += GAP
    legend = "Blue: made more likely. Orange: less likely. No colour: left alone. Entropy: grey is undecided."
    parts.append(text(EDGE, y, legend, "head"))
    return svg("How five methods push each token of a right and of a wrong response", width, y + EDGE, STYLE, parts)


def _row(of: Tensor, mask: Tensor, response: int) -> list[float]:
    return of[response][mask[response]].tolist()


def _colour(push: float) -> tuple[str, str | float]:
    """Orange to blue from -1.2 to 1.2; no colour for none."""
    half = len(COLOURS) // 2
    level = round(half * max(-1.0, min(1.0, push / 1.2)))
    if abs(push) < 0.02:
        return NONE
    return COLOURS[half + level] if level else (NONE[0], 0.15)


def _line(name: str, tokens: Sequence[str], colours: Sequence[tuple[str, str | float]], y: int) -> Iterator[str]:
    yield text(EDGE, y + 16, name)
    for k, (token, (ground, ink)) in enumerate(zip(tokens, colours, strict=True)):
        x = EDGE + LABEL + COLUMN * k
        share, style = ("", f' style="fill:{ink}"') if isinstance(ink, str) else (f' fill-opacity="{ink}"', "")
        box = f'x="{x}" y="{y}" width="{COLUMN - 1}" height="{ROW - 2}"'
        yield f'<rect {box} fill="{ground}"{share} stroke="#808890" stroke-opacity="0.4"/>'
        yield f'<text class="token" x="{x + COLUMN / 2 - 0.5:g}" y="{y + 16}"{style}>{escape(token)}</text>'

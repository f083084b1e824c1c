"""explain.html: the explanation as one file that loads nothing, runs nothing and can be mailed."""

from __future__ import annotations

import math
from pathlib import Path

from markupsafe import Markup

from ...base.text import number
from ..page.page import policy, stylesheet, template, write
from ..page.text import paragraph, percent, visible
from .cards import Drawing, draw
from .result import Explanation
from .shares import Shares
from .table import COLUMNS, angle, legend

HERE = Path(__file__).parent
SHADES = 9  # of a cosine, the colours d0..d8 of the style sheet


def write_page(result: Explanation, target: Path, responses: int = 8) -> Path:
    """Draws it, with the tokens of so many responses.

    Raises:
        TokenPOError: the place cannot be written.
    """
    return write(render(result, responses), target)


def render(result: Explanation, responses: int = 8) -> str:
    """The page as text. The same recording gives the same bytes."""
    drawing = draw(result, responses)
    style = _style(drawing)
    labels = [visible(label, limit=80) for label in result.labels]
    return template(HERE, "explain.html").render(
        policy=policy(style),
        style=Markup(style),
        title=visible(result.title, limit=200),
        source=visible(result.recording.source, limit=300),
        notes=[visible(note, limit=1000) for note in (*result.notes, *drawing.notes)],
        refused=[visible(reason, limit=1000) for _, reason in result.refused],
        legend=legend(result),
        columns=[heading for _, heading in COLUMNS],
        tokens=_cells(result.tokens),
        rows=[(label, _cells(row)) for label, row in zip(labels, result.table, strict=True)],
        cosines=[
            (label, [(angle(x), shade(x)) for x in row]) for label, row in zip(labels, result.cosines, strict=True)
        ],
        drawing=drawing,
        labels=labels,
        objectives=[
            (label, paragraph(str(method.objective), limit=5000))
            for label, method in zip(labels, result.methods, strict=True)
        ],
    )


def shade(cosine: float) -> str:
    """The class of a cosine: orange where two methods push apart, blue where they push alike.

    >>> shade(-1.0), shade(0.0), shade(1.0), shade(float("nan"))
    ('m0', 'm4', 'm8', 'mn')
    """
    return "mn" if math.isnan(cosine) else f"m{min(SHADES - 1, max(0, int((cosine + 1) / 2 * SHADES)))}"


def _cells(row: Shares) -> list[tuple[str, float | None]]:
    """(text, fraction for its bar) of each column; the size has no bar."""
    values = [getattr(row, name) for name, _ in COLUMNS]
    bars = [(percent(x), None if math.isnan(x) else round(40 * x, 1)) for x in values]
    return [(number(row.size), None), *bars]


def _style(drawing: Drawing) -> str:
    """The style sheet, and the rules of this page: colours per quantity, methods, columns of the readout."""
    rules = [stylesheet(HERE / "explain.css")]
    rules += [f".m{i}{{background:var(--d{i});color:var(--dt{i})}}" for i in range(SHADES)]
    for i, scale in enumerate(drawing.scales):
        rules += scale.rules(f"q{i}")
        rules.append(f":root:has(#q{i}:checked) .legend-{i}{{display:block}}")
    rules += [f":root:not(:has(#s{i}:checked)) .method-{i}{{display:none}}" for i in range(len(drawing.methods))]
    columns = len(drawing.scales) + 1
    rules += [
        f".view .tokens tr:hover td:nth-of-type({i + 1}),.readout b:nth-of-type({i + 1})"
        f"{{left:{100 * i / columns:.2f}%}}"
        for i in range(columns)
    ]
    return "\n".join(rules)

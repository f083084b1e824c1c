"""Values as a notebook shows them: small tables of escaped text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .text import disarmed


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """HTML of a table under a title; every text is escaped.

    >>> table("a < b", ["x"], [[1]])
    '<p><b>a &lt; b</b></p><table><tr><th>x</th></tr><tr><td>1</td></tr></table>'
    """

    def text(value: object) -> str:
        return escape(disarmed(str(value)))

    def line(tag: str, cells: Iterable[object]) -> str:
        return f"<tr>{''.join(f'<{tag}>{text(cell)}</{tag}>' for cell in cells)}</tr>"

    lines = [line("th", head), *(line("td", row) for row in rows)]
    return f"<p><b>{text(title)}</b></p><table>{''.join(lines)}</table>"

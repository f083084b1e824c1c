"""Pieces of the pictures that the site's tools draw."""

from collections.abc import Iterable
from html import escape

# From orange to blue: ground and ink.
COLOURS = (
    ("#b3400b", "#fff"), ("#dd6a2c", "#16181a"), ("#f2a477", "#16181a"), ("#fad7c1", "#16181a"), ("#f1f1ee", "#16181a"),
    ("#cfe2f2", "#16181a"), ("#92c0e3", "#16181a"), ("#4a90c9", "#101214"), ("#1763a6", "#fff"),
)  # fmt: skip

NIGHT = "@media (prefers-color-scheme: dark) { text { fill: #d6d9de } .head { fill: #a0a6ae } }"


def svg(label: str, width: int, height: int, style: str, parts: Iterable[str]) -> str:
    """A picture on the page's own ground, as text."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    return "\n".join([head, f"<style>\n{style}\n{NIGHT}\n</style>", *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, kind: str = "", style: str = "") -> str:
    of = f' class="{kind}"' * bool(kind) + f' style="{style}"' * bool(style)
    return f'<text{of} x="{x:g}" y="{y:g}">{escape(words)}</text>'

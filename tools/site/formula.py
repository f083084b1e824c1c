"""The formulas of the pages of methods, plain text in their source, set with italics, subscripts and superscripts."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

FORMULAS = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A letter, Greek or Latin, perhaps with marks above it, behind it what stands below it: r_it, p_old,it, Σ_{k∈O}, R_(i).
SYMBOL = re.compile(
    r"(?<![\d'])(?P<word>[^\W\d_][̀-ͯ]*(?:[^\W_][̀-ͯ]*)*'*)"
    r"(?:_(?P<below>\{[^}]*\}|[^\W_]+(?:,[<>≤≥]?[^\W_]+)*))?"
    r"(?:\^(?P<above>\{[^}]*\}|\([^)]*\)|[^\W_]+))?"
)


def typeset(page: str) -> str:
    """The page of a method with its formulas set; what follows its options is code and stays."""
    prose, options, rest = page.partition("\n## Options\n")
    return FORMULAS.sub(lambda block: str(_block(block[1])), prose) + options + rest


def _block(text: str) -> Markup:
    # Markdown leaves an element alone that has no empty line inside.
    lines = (line or " " for line in text.rstrip("\n").splitlines())
    return Markup('<div class="formula">{}</div>').format(Markup("<br>").join(map(_line, lines)))


def _line(text: str) -> Markup:
    out, at = Markup(""), 0
    for found in SYMBOL.finditer(text):
        out += escape(text[at : found.start()]) + _symbol(found)
        at = found.end()
    return (out + escape(text[at:])).replace("  ", Markup("&emsp;"))


def _symbol(found: re.Match[str]) -> Markup:
    word, below, above = (part or "" for part in found.group("word", "below", "above"))
    letters = re.sub(r"[\W\d]", "", word)
    if len(letters) > 3 and len(below) > 3:  # a name of the code
        return escape(found[0])
    # One letter is a variable; more are a function, an option, or a word.
    out = Markup("<i>{}</i>").format(word) if len(letters) == 1 and word != "Σ" else escape(word)
    if below:
        out += Markup("<sub>{}</sub>").format(below.strip("{}"))
    if above:
        out += Markup("<sup>{}</sup>").format(above.strip("{}"))
    return out

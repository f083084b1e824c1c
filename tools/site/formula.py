"""The formulas of the pages of methods, plain text in their source, set with italics, subscripts and superscripts."""

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

NOTATION = re.compile(r"^\| notation \|.*\n(?:\|.*\n)+", re.MULTILINE)
FORMULAS = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A letter, Greek or Latin, perhaps with marks above it, or the end of a bracket or a number; then what stands below and
# above it: r_it, p_old,it, V_i,t+1, Σ_{k∈O}, R_(i), A^E_i, (1 − p)^k. A name of the code: max_new_tokens, `influence`.
BELOW = r"_(?P<{}>\{{[^}}]*\}}|\([^)]*\)|[^\W_²³]+(?:,[<>≤≥]?[^\W_²³]+(?:\+[^\W_]+)?)*)"
SYMBOL = re.compile(
    r"`(?P<quoted>[^`]+)`|(?P<name>[a-z]+(?:_[a-z]+){2,})|(?<![\d'])(?<!\d[a-z])(?<![^\W\d_]-)"
    r"(?P<word>[^\W\d_²³½][̀-ͯ]*(?:[^\W_][̀-ͯ]*)*'*|(?<=[)\]|])(?=[_^])|\d+(?=\^))"
    rf"(?:{BELOW.format('below')})?(?:\^(?P<above>\{{[^}}]*\}}|\([^)]*\)|−?[^\W_]+)(?:{BELOW.format('under')})?)?"
)
INDICES = "ijktgvsn0123456789"  # that end what stands below a word of three letters or more
# A line may be broken where two formulas meet: at a wide space, or behind a comma or semicolon outside of brackets.
WIDE = re.compile(r"(?<=\S) {2,}(?=\S)")
OPENING, CLOSING = "([{", ")]}"


def typeset(page: str) -> str:
    """The page of a family with its formulas and the symbols of its notation set."""
    page = NOTATION.sub(lambda table: re.sub(r"^\| (\S.*?) \|", _first, table[0], flags=re.MULTILINE), page)
    return FORMULAS.sub(lambda block: str(_block(block[1])), page)


def _first(cell: re.Match[str]) -> str:
    return f"| {_inline(cell[1])} |"


def _block(text: str) -> Markup:
    # Markdown leaves an element alone that has no empty line inside.
    lines = (Markup("<p>{}</p>").format(_line(line)) for line in text.rstrip("\n").splitlines() if line.strip())
    return Markup('<div class="formula">{}</div>').format(Markup("").join(lines))


def _line(text: str) -> Markup:
    indent = Markup("&emsp;") * ((len(text) - len(text.lstrip())) // 2)
    spans = (Markup(" ").join(map(_span, _clauses(part))) for part in WIDE.split(text.strip()))
    return indent + Markup("&emsp; ").join(spans)


def _clauses(text: str) -> Iterator[str]:
    depth = start = 0
    for at, sign in enumerate(text):
        depth += (sign in OPENING) - (sign in CLOSING)
        if sign == " " and text[at - 1] in ",;" and depth <= 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _span(text: str) -> Markup:
    return Markup("<span>{}</span>").format(_inline(text))


def _inline(text: str) -> Markup:
    out, at = Markup(""), 0
    for found in SYMBOL.finditer(text):
        out += escape(text[at : found.start()]) + _symbol(found)
        at = found.end()
    return out + escape(text[at:])


def _symbol(found: re.Match[str]) -> Markup:
    if found["quoted"]:
        return Markup("<code>{}</code>").format(found["quoted"])
    if found["name"]:
        return escape(found["name"])
    word, above, below = found["word"], found["above"] or "", found["below"] or found["under"] or ""
    letters = re.sub(r"[\W\d]", "", word)
    if len(letters) > 2 and re.fullmatch(r"[a-z]+", below) and (len(below) > 2 or below[-1] not in INDICES):
        return escape(found[0])  # a name of the code: low_clip, nemo_rl
    # One letter is a variable, unless it is an article or begins a name; more are a function, an option, or a word.
    behind = found.string[found.end() :]
    prose = re.match(r" [a-z]{3}" if found[0] == "a" else r"-[A-Z]", behind)
    variable = len(letters) == 1 and word != "Σ" and not prose
    out = Markup("<i>{}</i>").format(word) if variable else escape(word)
    if below:
        out += Markup("<sub>{}</sub>").format(below.strip("{}"))
    if above:
        inside = above[1:-1] if above[0] in OPENING else above
        out += Markup("<sup>{}</sup>").format(_inline(inside))
    return out

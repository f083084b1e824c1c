"""Fallback extraction: the formula that a text calls the answer, when nothing is boxed or tagged."""

from __future__ import annotations

import re

from .reading import Answer, read
from .units import is_unit

_FORMULA = 1000  # characters of a text that may be a formula as a whole
_TAIL = 2000  # characters of a text in which the answer is looked for
_CUE = re.compile(r"\banswer(?:\**:| is\b:?| =)", re.IGNORECASE)
_DENIES = re.compile(r"\b(?:not|no|\w+n't|wrong|incorrect|false|never|neither|nor|cannot)\b|\?$", re.IGNORECASE)
_BOUNDS = re.compile(r"(?:\bat (?:least|most)|\b(?:more|less|fewer|greater|smaller) than|\bbetween|\bup to) *$")
_NOISE = re.compile(r"\*\*|<<.*?>>|\s*\n\s*(?=\\\]|\$\$)|(?<=\\\[|\$\$)\s*\n\s*")  # <<8+9=17>> is a calculator's
_SPAN = re.compile(
    r"""
    \$\$.+?\$\$ | \\\(.+?\\\) | \\\[.+?\\\] |                            # marked as maths,
    (?<!\d)\$[^$\n]*?[^$\n\d\s][^$\n]*?\$ | \$-?\d[^$\n a-zA-Z]*\$ |     # with dollars that are no money
    -?[\d.]*(?:\\[a-zA-Z]+(?:\{[^{}]*\})+)+ |                            # bare LaTeX
    (?<![\w.])[-−–+]?(?:\\?\$|€|£)?(?:\d|\(\d|\.\d)                      # a number and what is done to it
    (?:[\d.,/^%°½¼¾]|\\%|\ *[-+*/=×÷−–]\ *(?=[-\d($])|[()])*
    (?:\ (?:dozen|hundred|thousand|million|billion)\b)?
    """,
    re.DOTALL | re.VERBOSE,
)
_JOIN = re.compile(r"[\s,*]*(?:or|and|,|/|)[\s,*]*", re.IGNORECASE)


def unmarked(text: str) -> Answer | None:
    """The answer of a text without box or tag: all of it, else what follows the last cue, else its last formula."""
    text = _NOISE.sub(" ", text[-_TAIL:]).strip()
    if len(text) <= _FORMULA:
        whole = read(text)
        if whole is not None and whole.is_maths:
            return whole
    if not re.search(r"[A-Za-z]{2}", re.sub(r"\\[a-zA-Z]+ *(?:\{[^{}]*\})?", "", text)):
        return None  # not a sentence
    cues = list(_CUE.finditer(text))
    tail = text[cues[-1].end() :].lstrip(" :*\n") if cues else text
    line = tail.split("\n")[0 if cues else -1].strip().rstrip("!")
    if cues and (answer := read(line)) is not None and answer.is_maths:
        return answer
    return None if _DENIES.search(line) else _of_line(line, first=bool(cues))


def _of_line(line: str, *, first: bool) -> Answer | None:
    """The first or the last formula, with all that "or", "and" or a comma join to it, and a unit behind it."""
    spans = [span for span in _SPAN.finditer(line) if span[0].strip(" .,")]
    if not spans:
        return None
    start = end = 0 if first else len(spans) - 1
    while start and _JOIN.fullmatch(line[spans[start - 1].end() : spans[start].start()]):
        start -= 1
    while end + 1 < len(spans) and _JOIN.fullmatch(line[spans[end].end() : spans[end + 1].start()]):
        end += 1
    if _BOUNDS.search(line[: spans[start].start()]):
        return None
    unit = re.match(r" *([a-zA-Z]+(?:/[a-z]+)?)", line[spans[end].end() :])
    formulas = " , ".join(span[0].strip(" .,") for span in spans[start : end + 1])
    return read(f"{formulas} {unit[1]}" if unit and is_unit(unit[1]) else formulas)

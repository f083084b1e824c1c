"""The answer in a text that marks none: the formula of which the last sentence says that it is the answer."""

from __future__ import annotations

import re

from .reading import Answer, read

_FORMULA = 1000  # characters of a text that may be a formula as a whole
_TAIL = 2000  # characters of a text in which the answer is looked for
_CUE = re.compile(r"\banswer(?:\**:| is\b:?| =)", re.IGNORECASE)
_DENIES = re.compile(r"\b(?:not|no|\w+n't|wrong|incorrect|false|never|neither|nor|cannot)\b", re.IGNORECASE)
_SPAN = re.compile(
    r"\$\$.+?\$\$|(?<!\d)\$[^$\n]*?[^$\n\d\s][^$\n]*?\$|\$-?\d[^$\n a-zA-Z]*\$|\\\(.+?\\\)|\\\[.+?\\\]|"  # marked as maths
    r"(?<![\w.])[-−–+]?(?:\\?\$|€|£)?(?:\d|\(\d|\.\d)(?:[\d.,/^%°½¼¾]|\\%| *[-+*/=×÷−–] *(?=[-\d($])|[()])*",
    re.DOTALL,
)
_JOIN = re.compile(r"[\s,*]*(?:or|and|,|/|)[\s,*]*", re.IGNORECASE)


def unmarked(text: str) -> Answer | None:
    """The text as a formula; else what follows the last cue; else the last formula of the last line."""
    if len(text) <= _FORMULA:
        whole = read(text)
        if whole is not None and whole.is_maths:
            return whole
    text = re.sub(r"\*\*|\s*\n\s*(?=\\\]|\$\$)|(?<=\\\[|\$\$)\s*\n\s*", " ", text[-_TAIL:].strip())
    cues = list(_CUE.finditer(text))
    tail = text[cues[-1].end() :].lstrip(" :*\n") if cues else text
    line = tail.split("\n")[0 if cues else -1].strip()
    if cues and (answer := read(line)) is not None and answer.is_maths:
        return answer
    if not re.search(r"[A-Za-z]{2}", text) or _DENIES.search(line):
        return None
    spans = [span for span in _SPAN.finditer(line) if span[0].strip(" .,")]
    if not spans:
        return None
    place = 0 if cues else len(spans) - 1
    first = last = place
    while first and _JOIN.fullmatch(line[spans[first - 1].end() : spans[first].start()]):
        first -= 1
    while last + 1 < len(spans) and _JOIN.fullmatch(line[spans[last].end() : spans[last + 1].start()]):
        last += 1
    return read(" , ".join(span[0].strip(" .,") for span in spans[first : last + 1]))

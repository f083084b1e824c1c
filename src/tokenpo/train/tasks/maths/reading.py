"""The parser of answers, from lists, sets, intervals and names down to values: the first reader that knows a form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from . import engine
from .spelling import spelled
from .units import Unit, measured

_DEEPEST = 40  # brackets within brackets
_OPENING = ("(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil")
_CLOSING = (")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil")
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_PAIR = re.compile(r"(\\\{)(.*)(\\\})|([(\[])(.*)([)\]])|(\{)(.*)(\})", re.DOTALL)


def levels(text: str) -> Iterator[tuple[int, int]]:
    """Where each token begins, and how many brackets are open after it."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
        yield token.start(), depth


def is_balanced(text: str) -> bool:
    """Whether each bracket that is opened is closed, and not too many are open at once."""
    depths = [0, *(depth for _, depth in levels(text))]
    return min(depths) == 0 == depths[-1] and max(depths) <= _DEEPEST


def split(separator: re.Pattern[str], text: str) -> list[str]:
    """The text, split at the matches of the pattern outside all brackets."""
    found, start = [], 0
    for place, depth in levels(text):
        if depth == 0 and place >= start and (match := separator.match(text, place)):
            found.append(text[start:place].strip())
            start = match.end()
    return [*found, text[start:].strip()]


def inside(text: str) -> tuple[str, str, str] | None:
    r"""Opening, inside and closing of a text that is one group in brackets; round and square ones may be mixed.

    >>> inside("[1, 2)"), inside("(1)(2)")
    (('[', '1, 2', ')'), None)
    """
    pair = _PAIR.fullmatch(text)
    if pair is None:
        return None
    opening, content, closing = (group for group in pair.groups() if group is not None)
    if any(depth == 0 and place < len(text) - len(closing) for place, depth in levels(text)):
        return None
    return opening, content.strip(), closing


_LONGEST = 20_000  # characters of an answer that is parsed
_OR = re.compile(r"[,;]? *(?<![a-zA-Z])or(?![a-zA-Z])")
_LIST = re.compile(r"[,;]? *(?<![a-zA-Z])(?:and|or)(?![a-zA-Z])|[,;]")
_UNION = re.compile(r"\\cup(?![a-zA-Z])")
_EQUALS = re.compile(r"(?<![<>!])=|\\equiv(?=.*\\pmod)")
_IN = re.compile(r"\\in(?![a-zA-Z])")
_REGION = re.compile(
    r"\\(?:ne|cup|cap|setminus)(?![a-zA-Z])|\|(?=.*([<>]|\\[lg]e(?![a-z])))|([<>]|\\[lg]e(?![a-z])).*\|"
)
_ORDER = re.compile(r"<=?|>=?|\\[lg]e(?![a-zA-Z])")
_SUCH = re.compile(r"\\mid(?![a-zA-Z])|\||:")
_SIGNS = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_TO = re.compile(r":|(?<=\d )to(?= \d)")
_CLOCK = re.compile(r"(?:[01]?\d|2[0-4]) ?: ?[0-5]\d(?: ?: ?[0-5]\d)?(?: ?[ap]\.? ?m\b.*)?")
_MODULUS = re.compile(r" *(?:\\pmod *\{?|\(mod )([^{}()]*)[})]?$")
_BASE = re.compile(r"(-?)\{?\(?([0-9A-F]+|[0-9a-f]+)\)?\}? *_ *\{? *\(?(\d\d?|[a-z]+)\)? *\}?")
_BASES = "zero one two three four five six seven eight nine ten eleven twelve . . . sixteen".split()
_NAME = re.compile(
    r"[A-Za-z ]+|"  # the number of ways
    r"(?:\\angle *|\\triangle *)?(?:[A-Za-z]{1,4}|\\(?!not|neg)[a-z]+ *|\\(?:overline|vec|bar|hat)\{[A-Za-z]+\})'*"
    r"(?:_(?:\w|\{\\?\w+\}))?(?:\^\{-1\})?(?:\([^()]*\))?|"  # AB, x_{1}, f^{-1}(x), P(X=2)
    r"\([a-zA-Z](?:, *[a-zA-Z])+\)"  # (x, y)
)
_CONSTANTS = ("e", "i", r"\pi", r"\infty")


@dataclass(frozen=True)
class Answer:
    """A parsed answer.

    Its kind: "value", "relation" and "equation" are for the engine; "list", "set", "tuple" (or interval), "union",
    "ratio" and "clock" (a time, or a ratio such as 3:10) have items; "letters" have an order; "base" is a number in a
    base; "dots" and "text" are not parsed.
    """

    kind: str
    text: str  # in one spelling, without name and unit
    items: tuple[Answer, ...] = ()  # of an equation the two sides
    name: str = ""  # the x of x = 7
    unit: Unit | None = None
    ends: str = ""  # the brackets of a tuple or an interval; the base of a number

    @property
    def is_maths(self) -> bool:
        """Whether no part is of kind "text"."""
        return self.kind != "text" and all(item.is_maths for item in self.items)

    @property
    def key(self) -> str:
        """The text in lower case, without blanks."""
        return "".join(self.text.casefold().split())


@lru_cache(maxsize=1024)
def read(text: str) -> Answer | None:
    """The parsed text; None where it is empty."""
    if len(text) > _LONGEST:
        return Answer("text", text)
    spelling = spelled(text)
    return _read(spelling) if spelling else None


def _read(text: str) -> Answer:
    text = _bare(text.strip())
    if not text or not is_balanced(text):
        return Answer("text", text)
    answers = (reader(text) for reader in READERS)
    return next((answer for answer in answers if answer is not None), Answer("text", text))


def _bare(text: str) -> str:
    """The text without outer brackets that hold a single thing."""
    while (group := inside(text)) and group[0] + group[2] in ("{}", "()") and group[1]:
        if group[0] == "(" and (len(split(_LIST, group[1])) > 1 or r"\ldots" in group[1]):
            break
        text = group[1]
    return text


def _flat(items: Iterable[Answer]) -> Iterator[Answer]:
    """The items, with those of inner lists in their place, as for 0, ±1."""
    for item in items:
        yield from item.items if item.kind == "list" else (item,)


def _atom(text: str) -> Answer | None:
    r"""Digits, which most answers are; \mathbb{R}, \emptyset, \{\}; \ldots in a list."""
    if engine.number(text) is not None:
        return Answer("value", text)
    if text == r"\mathbb{R}":
        return _read(r"(-\infty,\infty)")
    if text.replace(" ", "") in (r"\emptyset", r"\{\}"):
        return Answer("set", r"\emptyset")
    return Answer("dots", text) if text == r"\ldots" else None


def _member(text: str) -> Answer | None:
    r"""x \in [1, 2], which is [1, 2]."""
    sides = split(_IN, text)
    return replace(_read(sides[1]), name=sides[0]) if len(sides) == 2 and _is_name(sides[0]) else None


def _union(text: str) -> Answer | None:
    r"""(1, 2) \cup (3, 4)."""
    sets = split(_UNION, text)
    return Answer("union", text, tuple(map(_read, sets))) if len(sets) > 1 else None


def _list(text: str) -> Answer | None:
    """2, 3; 2 or 3; x < 1 or x > 3, a union; 1/2 or 0.5, one number."""
    texts = split(_LIST, text)
    if len(texts) < 2 or not all(texts):
        return None
    items = tuple(map(_read, texts))
    if len(split(_OR, text)) == len(texts):
        if all(item.kind == "tuple" and len(item.items) == 2 for item in items):
            return Answer("union", text, items)
        if all(item.kind == "value" and engine.same(items[0].text, item.text) for item in items):
            return items[0]
    return Answer("list", text, tuple(_flat(items)))


def _modular(text: str) -> Answer | None:
    """3 (mod 7): a modulus is like a unit; given on both sides, it is the same."""
    found = _MODULUS.search(text)
    if not found or _EQUALS.search(text):
        return None
    return replace(_read(text[: found.start()]), unit=Unit(((f"mod {found[1].strip()}", 1),), Fraction(1)))


def _approximate(text: str) -> Answer | None:
    r"""\pi \approx 3.14, where the exact value stands before the sign if there is one."""
    sides = split(re.compile(r"\\approx"), text)
    if len(sides) < 2:
        return None
    return replace(_read(sides[1]), name=sides[0]) if _is_name(sides[0]) else _read(sides[0] or sides[1])


def _is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text)) and text not in _CONSTANTS


def _equation(text: str) -> Answer | None:
    """x = 7, a name and its value; 6 * 7 = 42, a chain that is true; else an equation of two sides."""
    *before, last = split(_EQUALS, text)
    if not before:
        return None
    if not all(before) or not last:
        return Answer("text", text)
    value_first = engine.number(before[0]) is not None or (engine.is_variable(last) and engine.is_constant(before[0]))
    if len(before) == 1 and value_first:  # 7 = x, 10 = 6 + 4
        before, last = [last], before[0]
    answer, constant = _read(_MODULUS.sub("", last)), engine.is_constant(before[0])
    named = _is_name(before[0]) or (len(before) > 1 and not constant)
    if not named and not constant:
        return Answer("equation" if engine.is_known(text) else "text", text, (_read(before[0]), answer))
    if not all(engine.same(answer.text, measured(side)[0]) for side in before[named:]):
        return Answer("text", text)
    return replace(answer, name=before[0] if named else "")


def _order(text: str) -> Answer | None:
    """1 < x <= 2 as the interval (1, 2], x > 1 as a ray; other relations are the engine's."""
    sides, signs = split(_ORDER, text), _ORDER.findall(text)
    if len(sides) < 2:
        return None
    falling = [sign[0] == ">" or sign == r"\ge" for sign in signs]
    if not all(sides) or len(signs) != len(sides) - 1 or len(set(falling)) > 1:
        return Answer("text", text)
    if falling[0]:
        sides, signs = sides[::-1], signs[::-1]
    if len(sides) == 2 and engine.is_variable(sides[0]) != engine.is_variable(sides[1]):
        below = engine.is_variable(sides[0])
        sides, signs = ([r"-\infty", *sides], ["<", *signs]) if below else ([*sides, r"\infty"], [*signs, "<"])
    if len(sides) != 3 or not engine.is_variable(sides[1]):
        return Answer("relation" if len(sides) == 2 and engine.is_known(text) else "text", text)
    low, name, high = sides
    ends = ("(" if signs[0] in "<>" else "[") + (")" if signs[1] in "<>" else "]")
    return Answer("tuple", f"{ends[0]}{low},{high}{ends[1]}", (_read(low), _read(high)), name=name, ends=ends)


def _plus_and_minus(text: str) -> Answer | None:
    r"""(1 \pm \sqrt{5}) / 2: a list of two, with the upper and the lower signs."""
    if not _SIGNS.search(text) or text.startswith(r"\{"):
        return None
    upper, lower = (
        _SIGNS.sub(lambda sign, plus=plus: "+" if sign[1] == plus else "-", text).lstrip("+") for plus in ("pm", "mp")
    )
    return Answer("list", text, (_read(upper), _read(lower)))


def _group(text: str) -> Answer | None:
    r"""A tuple, an interval, a set by its elements or as \{x \mid x > 1\}; [7] is 7."""
    opening, content, closing = inside(text) or ("", "", "")
    if not content:
        return None
    such, texts = split(_SUCH, content), split(_LIST, content)
    if opening == r"\{" and len(such) == 2 and all(such):
        return _read(such[1])
    if not all(texts):
        return None
    if opening == r"\{":
        return Answer("set", text, tuple(_flat(map(_read, texts))))
    if len(texts) > 1:
        return Answer("tuple", text, tuple(map(_read, texts)), ends=opening + closing)
    return _read(content) if opening + closing == "[]" else None


def _ratio(text: str) -> Answer | None:
    """3 : 2, 3 to 2, and the time 3:30."""
    numbers = split(_TO, text)
    if len(numbers) < 2 or not all(numbers):
        return None
    return Answer("clock" if _CLOCK.fullmatch(text) else "ratio", text, tuple(map(_read, numbers)))


def _base(text: str) -> Answer | None:
    """101_2; 42_{10} is 42."""
    found = _BASE.fullmatch(text)
    if not found:
        return None
    sign, digits, name = found.groups()
    digits, base = digits.upper(), int(name) if name.isdigit() else _BASES.index(name) if name in _BASES else 0
    if digits.isalpha() and (base < 11 or len(digits) == 1 < 16 - base):  # A_2 is a point
        return None
    if not 2 <= base <= 16 or len(digits) > 1000 or any(int(digit, 16) >= base for digit in digits):
        return Answer("text", text)
    return Answer("value", sign + digits) if base == 10 else Answer("base", sign + digits, ends=str(base))


def _letters(text: str) -> Answer | None:
    """HHT, letters in an order; abc is a product."""
    return Answer("letters", text) if re.fullmatch("[A-Z](?: ?[A-Z])+", text) else None


def _region(text: str) -> Answer | None:
    r"""Numbers that the engine finds: (0, 1] \cup (1, 2), |x| < 1, x \ne 2, \mathbb{R} \setminus \{2\}."""
    found = engine.region(text) if _REGION.search(text) else None
    return (_union(spelled(found)) or _read(spelled(found))) if found else None


def _value(text: str) -> Answer | None:
    """A formula that the engine reads in full, with or without a unit."""
    value, unit = measured(text)
    if value != text and (answer := _read(value)).is_maths:
        return replace(answer, unit=unit)
    return Answer("value", text) if engine.is_known(text) else None


READERS = (
    *(_atom, _member, _region, _union, _list, _modular, _approximate, _equation, _order),
    *(_plus_and_minus, _group, _ratio, _base, _letters, _value),
)

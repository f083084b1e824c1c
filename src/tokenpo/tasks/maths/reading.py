r"""What an answer is made of: lists, sets, tuples, intervals, names and numbers in a base, down to values for the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from . import engine
from .spelling import spelled
from .units import Unit, measured

_LONGEST, _DEEPEST = 20_000, 40  # characters, and brackets within brackets, of what is taken apart
_OPENING, _CLOSING = ("(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil"), (")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil")
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_OR = re.compile(r"[,;]? *(?<![a-zA-Z])or(?![a-zA-Z])")
_LIST, _UNION = re.compile(r"[,;]? *(?<![a-zA-Z])(?:and|or)(?![a-zA-Z])|[,;]"), re.compile(r"\\cup(?![a-zA-Z])")
_EQUALS, _ABOUT, _IN = re.compile(r"(?<![<>!])=|\\equiv(?=.*\\pmod)"), re.compile(r"\\approx"), re.compile(r"\\in(?![a-zA-Z])")
_ORDER = re.compile(r"<=?|>=?|\\[lg]e(?![a-zA-Z])")
_SUCH = re.compile(r"\\mid(?![a-zA-Z])|\||:")
_COLON = re.compile(":")
_SIGNS = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_MODULUS = re.compile(r" *(?:\\pmod *\{?|\(mod )([^{}()]*)[})]?$")
_BASE = re.compile(r"\{?\(?([0-9A-Fa-f]*[0-9][0-9A-Fa-f]*)\)?\}? *_ *\{? *\(?(\d\d?|[a-z]+)\)? *\}?")
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "sixteen": 16}
_NAME = re.compile(
    r"[A-Za-z ]+|(?:\\angle *|\\triangle *)?(?:[A-Za-z]{1,4}|\\[a-z]+ *)'*(?:_(?:\w|\{\w+\}))?(?:\([^()=]*\))?|\([a-zA-Z](?:, *[a-zA-Z])+\)"
)
_EMPTY = (r"\emptyset", r"\{\}", r"\{ \}")


@dataclass(frozen=True)
class Answer:
    """What an answer is.

    Args:
        kind: "value", "relation" and "equation" are for the engine; "list", "set", "tuple", "union" and "ratio" have
            items, "tuple" any brackets that tell intervals apart, too; "base" is a number in a base; "dots", "text".
        text: in one spelling, without name and unit.
        items: of which it is made; of "base" none.
        name: of x = 7.
        unit: of a value.
        ends: the brackets of a tuple or an interval; the base of a number.
    """

    kind: str
    text: str
    items: tuple[Answer, ...] = ()
    name: str = ""
    unit: Unit | None = None
    ends: str = ""

    @property
    def interval(self) -> bool:
        """Whether it can be a part of a union."""
        return self.kind == "tuple" and len(self.items) == 2

    @property
    def is_maths(self) -> bool:
        """Whether no part is mere text."""
        return self.kind != "text" and all(item.is_maths for item in self.items)

    @property
    def key(self) -> str:
        """The text but for case and blanks: equal keys are equal answers."""
        return "".join(self.text.casefold().split())


@lru_cache(maxsize=1024)
def read(text: str) -> Answer | None:
    """What the text says; None where it is empty."""
    if len(text) > _LONGEST:
        return Answer("text", text)
    spelling = spelled(text)
    return _read(spelling) if spelling else None


def _read(text: str) -> Answer:
    text = _bare(text.strip())
    depth, deepest = 0, 0
    for _, depth in _levels(text):
        deepest = max(deepest, depth)
        if depth < 0:
            return Answer("text", text)
    if depth or deepest > _DEEPEST or not text:
        return Answer("text", text)
    for reader in READERS:
        answer = reader(text)
        if answer is not None:
            return answer
    return Answer("text", text)


def _parts(pattern: re.Pattern[str], text: str) -> list[str]:
    """The text between what the pattern finds outside all brackets."""
    parts, start = [], 0
    for place, depth in _levels(text):
        if depth == 0 and place >= start and (found := pattern.match(text, place)):
            parts.append(text[start:place].strip())
            start = found.end()
    return [*parts, text[start:].strip()]


def _levels(text: str) -> Iterator[tuple[int, int]]:
    """Where each token begins, and how many brackets are open after it."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
        yield token.start(), depth


def _inside(text: str) -> tuple[str, str, str] | None:
    """Opening, inside and closing of a text that is one group in brackets."""
    opening = next((sign for sign in (r"\{", "(", "[", "{") if text.startswith(sign)), None)
    closing = next((sign for sign in (r"\}", ")", "]", "}") if text.endswith(sign)), None)
    if opening is None or closing is None or (opening[-1] == "{") != (closing[-1] == "}") or len(opening) != len(closing):
        return None
    if any(depth == 0 and place < len(text) - len(closing) for place, depth in _levels(text)):
        return None
    return opening, text[len(opening) : len(text) - len(closing)].strip(), closing


def _bare(text: str) -> str:
    """Without brackets around all of it that hold one thing."""
    while (group := _inside(text)) and group[0] + group[2] in ("{}", "()") and group[1]:
        if group[0] == "(" and (len(_parts(_LIST, group[1])) > 1 or r"\ldots" in group[1]):
            return text
        text = group[1]
    return text


def _empty(text: str) -> Answer | None:
    return Answer("set", r"\emptyset") if text in _EMPTY else None


def _dots(text: str) -> Answer | None:
    return Answer("dots", text) if text == r"\ldots" else None


def _number(text: str) -> Answer | None:
    return Answer("value", text) if engine.number(text) is not None else None


def _list(text: str) -> Answer | None:
    parts = _parts(_LIST, text)
    if len(parts) < 2 or not all(parts):
        return None
    items = tuple(_read(part) for part in parts)
    if len(_parts(_OR, text)) == len(parts) and all(item.interval for item in items):
        return Answer("union", text, items)
    return Answer("list", text, tuple(_spread(items)))


def _spread(items: tuple[Answer, ...]) -> Iterator[Answer]:
    """The items of lists in a list, as of 0, ±1."""
    for item in items:
        yield from item.items if item.kind == "list" else (item,)


def _union(text: str) -> Answer | None:
    parts = _parts(_UNION, text)
    return Answer("union", text, tuple(_read(part) for part in parts)) if len(parts) > 1 else None


def _modular(text: str) -> Answer | None:
    """A modulus is like a unit: given on both sides, it is the same."""
    found = _MODULUS.search(text)
    if not found or _EQUALS.search(text):
        return None
    return replace(_read(text[: found.start()]), unit=Unit(((f"mod {found[1].strip()}", 1),), Fraction(1)))


def _member(text: str) -> Answer | None:
    parts = _parts(_IN, text)
    return replace(_read(parts[1]), name=parts[0]) if len(parts) == 2 and _NAME.fullmatch(parts[0]) else None


def _approximate(text: str) -> Answer | None:
    """Before the sign stands the exact value, if there is one."""
    parts = _parts(_ABOUT, text)
    if len(parts) < 2:
        return None
    named = _NAME.fullmatch(parts[0])
    return replace(_read(parts[1]), name=parts[0]) if named else _read(parts[0] or parts[1])


def _equation(text: str) -> Answer | None:
    """A name and its value, a chain of true equations, or an equation with its two sides."""
    *parts, last = _parts(_EQUALS, text)
    if not parts:
        return None
    if not all(parts) or not last:
        return Answer("text", text)
    answer = _read(_MODULUS.sub("", last))
    named = bool(_NAME.fullmatch(parts[0])) or (len(parts) > 1 and not engine.is_constant(parts[0]))
    if not named and not engine.is_constant(parts[0]):
        return Answer("equation" if engine.is_known(text) else "text", text, (_read(parts[0]), answer))
    if any(not engine.same(answer.text, measured(part)[0]) for part in parts[named:]):
        return Answer("text", text)
    return replace(answer, name=parts[0] if named else "")


def _order(text: str) -> Answer | None:
    """a < x <= b as an interval; other relations are the engine's."""
    parts = _parts(_ORDER, text)
    if len(parts) < 2:
        return None
    signs = _ORDER.findall(text)
    if not all(parts) or len(signs) != len(parts) - 1:
        return Answer("text", text)
    down = [">" in sign or sign == r"\ge" for sign in signs]
    if any(down) != all(down):
        return Answer("text", text)
    if down[0]:
        parts, signs = parts[::-1], signs[::-1]
    if len(parts) == 2:  # x < a, a < x
        free = [engine.is_variable(part) for part in parts]
        if free == [True, False]:
            parts, signs = [r"-\infty", *parts], ["<", *signs]
        elif free == [False, True]:
            parts, signs = [*parts, r"\infty"], [*signs, "<"]
    if len(parts) != 3 or not engine.is_variable(parts[1]):
        return Answer("relation", text) if len(parts) == 2 and engine.is_known(text) else Answer("text", text)
    ends = ("(" if signs[0] in "<>" else "[") + (")" if signs[1] in "<>" else "]")
    return Answer("tuple", f"{ends[0]}{parts[0]},{parts[2]}{ends[1]}", (_read(parts[0]), _read(parts[2])), parts[1], None, ends)


def _plus_and_minus(text: str) -> Answer | None:
    """Upper and lower signs."""
    if not _SIGNS.search(text):
        return None
    upper = _SIGNS.sub(lambda sign: "+" if sign[1] == "pm" else "-", text)
    lower = _SIGNS.sub(lambda sign: "-" if sign[1] == "pm" else "+", text)
    return Answer("list", text, (_read(upper.lstrip("+")), _read(lower.lstrip("+"))))


def _group(text: str) -> Answer | None:
    group = _inside(text)
    if group is None:
        return None
    opening, inside, closing = group
    if opening == r"\{":
        such = _parts(_SUCH, inside)
        if len(such) == 2 and all(such):
            return _read(such[1])
        parts = _parts(_LIST, inside)
        return Answer("set", text, tuple(_spread(tuple(_read(part) for part in parts)))) if all(parts) else None
    parts = _parts(_LIST, inside)
    if len(parts) > 1 and all(parts):
        return Answer("tuple", text, tuple(_read(part) for part in parts), ends=opening + closing)
    return _read(inside) if opening == "[" and closing == "]" and len(parts) == 1 and inside else None


def _ratio(text: str) -> Answer | None:
    parts = _parts(_COLON, text)
    return Answer("ratio", text, tuple(_read(part) for part in parts)) if len(parts) > 1 and all(parts) else None


def _base(text: str) -> Answer | None:
    found = _BASE.fullmatch(text)
    if not found:
        return None
    base = int(found[2]) if found[2].isdigit() else _BASES.get(found[2], 0)
    digits = found[1].upper()
    if not 2 <= base <= 16 or any(int(digit, 16) >= base for digit in digits) or len(digits) > 1000:
        return Answer("text", text)
    return Answer("value", digits) if base == 10 else Answer("base", digits, ends=str(base))


def _value(text: str) -> Answer | None:
    value, unit = measured(text)
    if value != text:
        return replace(_read(value), unit=unit)
    return Answer("value", text) if engine.is_known(value) else None


READERS = (
    _number, _empty, _dots, _member, _union, _list, _modular, _approximate, _equation, _order, _plus_and_minus, _group,
    _ratio, _base, _value,
)  # fmt: skip

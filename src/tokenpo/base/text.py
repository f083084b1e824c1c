"""Numbers and settings as text for people."""

import math
import re
from collections.abc import Mapping
from typing import Any

# C0 and C1 controls except line breaks and tabs, the marks of bidirectional text, halves of surrogate pairs.
_OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def disarmed(text: str) -> str:
    """The text with control characters escaped.

    >>> print(disarmed("\\x1b[31mred \\u202e"))
    \\x1b[31mred \\u202e
    """
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def duration(seconds: float) -> str:
    """Seconds in the unit a person would use.

    >>> duration(42.4), duration(190), duration(7260)
    ('42 s', '3 min 10 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def number(x: float | None, digits: int = 3, *, padded: bool = False) -> str:
    """Three significant digits, without an exponent where that stays short; `padded` keeps trailing zeros.

    >>> [number(x) for x in (0.0, -0.123456, 0.000123456, 999.6, 1234.5, 2.5e-7, None)]
    ['0', '-0.123', '0.000123', '1,000', '1,234', '2.5e-07', '–']
    >>> [number(x, padded=True) for x in (0.0, 0.25, 0.0123456, 31.97, 250.0, 999.6)]
    ['0', '0.250', '0.0123', '32.0', '250', '1,000']
    """
    if x is None or not math.isfinite(x):
        return "–"
    if x == 0:
        return "0"
    # Compared after rounding: 999.6 rounds to 1000, which three digits show only with an exponent.
    if abs(float(f"{x:.{digits}g}")) >= 1000 and abs(x) < 1e7:
        return f"{x:,.0f}"
    if not 1e-4 <= abs(x) < 1e7:
        return f"{x:.2g}"
    return f"{x:#.{digits}g}".removesuffix(".") if padded else f"{x:.{digits}g}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's type.

    >>> first_line(ValueError("no such layer.\\nLayers: a, b")), first_line(KeyboardInterrupt())
    ('no such layer', 'KeyboardInterrupt')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line for each setting that differs between two nested tables.

    >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}})
    ['a.b: 1 -> 3']
    """
    a, b = flat(old), flat(new)
    return [f"{key}: {a.get(key)} -> {b.get(key)}" for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested table as one, its keys joined by dots.

    >>> flat({"train": {"lr": 1e-4}, "seed": 0})
    {'train.lr': 0.0001, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found

"""Numbers in words, for everything that a person reads."""

from __future__ import annotations


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

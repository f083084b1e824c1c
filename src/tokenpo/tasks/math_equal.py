"""Compares a completion with a reference by math-verify; runs inside a verifier process and imports nothing of ours."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from math_verify import parse, verify

# Its own time limits are off (0): they need signals of a main thread, and the pool kills from outside.

logging.disable(logging.WARNING)  # it warns of that

# 4.5e33 is a number; math-verify takes it for 4.5 times Euler's e times 33.
_POWER = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)[eE]([+-]?[0-9]+)")
_BOXED_POWER = re.compile(rf"\\boxed\{{\s*{_POWER.pattern}\s*\}}")
_LONGEST = 500  # characters of an answer that are kept to tell it from others


def equal(references: list[str], text: str) -> list[Any]:
    """[whether `text` gives one of `references`, note, the answer in it].

    A box counts, else the last expression. The answer is written as SymPy writes it, so that 0.5 and
    \\frac{1}{2} are one text; None where there is none.
    """
    answer = parse(_BOXED_POWER.sub(r"\\boxed{\1 \\times 10^{\2}}", text), parsing_timeout=0)
    if not answer:
        return [False, "no answer", None]
    known = [_reference(reference) for reference in references]
    if not all(known):
        return [False, "unreadable reference", _written(answer)]
    return [any(verify(gold, answer, timeout_seconds=0) for gold in known), "", _written(answer)]


def _written(answer: list[Any]) -> str:
    return str(answer[0])[:_LONGEST]


@lru_cache(maxsize=1024)
def _reference(text: str) -> Any:
    """Bare LaTeX such as x^2+1 is only found by math-verify inside a box."""
    if power := _POWER.fullmatch(text.strip()):
        text = rf"{power[1]} \times 10^{{{power[2]}}}"
    bare = "$" not in text and r"\boxed" not in text
    return (bare and parse(rf"\boxed{{{text}}}", parsing_timeout=0)) or parse(text, parsing_timeout=0)

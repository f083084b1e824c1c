"""Compares a completion with a reference by math-verify; runs inside a verifier process and imports nothing of ours."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

from math_verify import parse, verify
from sympy import Add, Basic, Float, MatrixBase, Rational, log
from sympy.core.relational import Relational

# Its own time limits are off (0): they need signals of a main thread, and the pool kills from outside.

logging.disable(logging.WARNING)  # it warns of that

# 4.5e33 is a number; math-verify takes it for 4.5 times Euler's e times 33.
_POWER = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)[eE]([+-]?[0-9]+)")
_BOXED_POWER = re.compile(rf"\\boxed\{{\s*{_POWER.pattern}\s*\}}")
_LONGEST = 500  # characters of an answer that are kept to tell it from others
_DIGITS = 15  # significant ones: what math-verify reads of a decimal, and what it computes with
_CLOSE = Rational(1, 10 ** (_DIGITS - 1))  # relative


def equal(references: list[str], text: str) -> list[Any]:
    """[whether `text` gives one of `references`, note, the answer in it].

    A box counts, else the last expression. The answer is written as SymPy writes it, so that 0.5 and
    \\frac{1}{2} are one text; None where there is none.
    """
    answer = parse(_BOXED_POWER.sub(r"\\boxed{\1 \\times 10^{\2}}", text), parsing_timeout=0)
    if not answer:
        return [False, "no answer", None]
    golds = [_reference(reference) for reference in references]
    if not all(golds):
        return [False, "unreadable reference", _written(answer)]
    return [any(_same(*pair) for gold in golds for pair in product(gold, answer)), "", _written(answer)]


def _same(gold: Any, answer: Any) -> bool:
    """math-verify's verdict; where it says yes, it has to say so of the exact numbers too.

    By itself it rounds decimals to six places and takes differences below 1e-14 for none, so that small numbers are all
    equal to it. The second look only takes away: decimals are fractions there, and what is small gets more digits.
    """
    if not verify(gold, answer, timeout_seconds=0):
        return False
    if _close(gold, answer):
        return True
    gold, answer = _exact(gold), _exact(answer)
    digits = _DIGITS + math.ceil(sum(-min(0.0, size) for item in (gold, answer) for size in _sizes(item)))
    return verify(gold, answer, numeric_precision=digits, timeout_seconds=0)


def _close(gold: Any, answer: Any) -> bool:
    """Whether two numbers with decimals agree in all digits there are: e^{0.5} is rounded when it is read."""
    numbers = [item for item in (gold, answer) if isinstance(item, Basic) and item.is_number]
    if len(numbers) < 2 or not any(item.has(Float) for item in numbers):
        return False
    a, b = (_exact(item).doit().evalf(2 * _DIGITS) for item in numbers)
    return bool(a.is_finite and b.is_finite and abs(a - b) <= _CLOSE * max(abs(a), abs(b)))


def _exact(item: Any) -> Any:
    """The expression with the fraction of its digits for every decimal; its order and what was left undone stay."""
    if isinstance(item, MatrixBase):
        return item.applyfunc(_exact)
    if not isinstance(item, Basic) or not item.has(Float):
        return item
    if isinstance(item, Float):
        return Rational(str(item)) if item.is_finite else item
    parts = [_exact(part) for part in getattr(item, "_unsorted_args", item.args)]
    return item.func(*parts, evaluate=False) if isinstance(item, Relational) else item.func(*parts)


def _sizes(item: Any) -> Iterator[float]:
    """The power of ten of each number in the expression, sums taken apart; 0 is none."""
    if not isinstance(item, (Basic, MatrixBase)):
        return
    expression: Any = item
    if getattr(item, "is_number", False) and not isinstance(item, Add):
        size = abs(expression.evalf(_DIGITS))
        yield float(log(size, 10)) if size.is_Float and size.is_finite and size != 0 else 0.0
        return
    for part in expression.flat() if isinstance(item, MatrixBase) else expression.args:
        yield from _sizes(part)


def _written(answer: list[Any]) -> str:
    return str(answer[0])[:_LONGEST]


@lru_cache(maxsize=1024)
def _reference(text: str) -> Any:
    """Bare LaTeX such as x^2+1 is only found by math-verify inside a box."""
    if power := _POWER.fullmatch(text.strip()):
        text = rf"{power[1]} \times 10^{{{power[2]}}}"
    bare = "$" not in text and r"\boxed" not in text
    return (bare and parse(rf"\boxed{{{text}}}", parsing_timeout=0)) or parse(text, parsing_timeout=0)

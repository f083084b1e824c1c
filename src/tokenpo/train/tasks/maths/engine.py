r"""Which formulas math-verify reads in full, and its verdict on two of them, made exact."""

import contextlib
import logging
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from latex2sympy2_extended.latex2sympy2 import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Add, Basic, FiniteSet, Float, I, Interval, MatrixBase, Rational, S, Set, Tuple, Union, latex, log
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

# math-verify's own time limits are off (0), as they need the main thread's signals; the pool kills the process instead.
logging.disable(logging.WARNING)  # math-verify warns that its limits are off

_LATEX = LatexExtractionConfig(
    boxed_match_priority=0,
    normalization_config=NormalizationConfig(units=False, malformed_operators=True, boxed="last"),
)
_DIGITS = 15  # significant digits that math-verify reads of a decimal and computes with
_CLOSE = Rational(1, 10 ** (_DIGITS - 1))  # relative
_NUMBER = re.compile(r"-? ?(?:\d{1,4000}(?:\.\d{0,200})?|\.\d{1,200})")
_COMMANDS = """
frac sqrt cdot times div pi infty circ ln log exp sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh binom
lfloor rfloor lceil rceil mid sum prod int lim to min max gcd begin end mathbb le ge setminus in
theta alpha beta gamma delta epsilon lambda mu nu xi rho sigma tau phi chi psi omega
Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega
"""
_ALPHABET = re.compile(
    rf"(?:\\(?:{'|'.join(_COMMANDS.split())})(?![a-zA-Z])|\\\\|[-0-9a-zA-Z.+*/^_(){{}}\[\]|!=<>& ,])*"
)
# Patterns that math-verify would skip or misread.
_NOT_READ = re.compile(
    r"""
    \d\ +\d (?![^&]*\\end) | \d*\.\d+\.|       # two numbers side by side; two points
    [\d)}]\ *_ (?<!\\log_)|                    # a subscript of anything but a letter
    (?:[-+*/^_=<>]|\\cdot|\\times)\ *$ |       # an operator without what it works on
    ^\ *[*/^_!=<>] | !! | \d\ *\\mid
    """,
    re.VERBOSE,
)
# math-verify adds an integer to a number that follows it without a sign. Mixed numbers are fractions in `spelling`, so
# all others are products: 5(6), (5)6, 4\binom{13}{2}; not f_2(3), and not 1/2(x + 1), which it reads as 1/(2(x + 1)).
_PRODUCT = re.compile(
    r"""
    (\\binom\ *\{[^{}]*\}\ *\{[^{}]*\} | \) | (?<![_^])\d (?!\ *\d|\ ?\\frac)) \ ?
    (?=\((?:[^a-zA-Z\\]|\\[a-zA-Z]{2,})*?\) | \{?\\binom | \d | \\frac)
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"(?<!\\)(?<![a-zA-Z\\])[a-zA-Z]{3,}")
_SHORT_WORD = re.compile(r"(?<![^ ])(?i:so|is|it|we|of|to|if|no|he|me|my|am|us|do)(?![^ ])")
_VARIABLE = re.compile(r"(?![ei]$)(?:[a-zA-Z]|\\(?!pi|infty|ldots)[a-z]+)(?:_\{?\w+\}?)?")


def number(text: str) -> Any:
    """The value of digits with a sign and a point, as a fraction; None for anything else."""
    return Rational(text.replace(" ", "")) if _NUMBER.fullmatch(text) else None


def is_known(text: str) -> bool:
    """Whether math-verify reads every sign: no word, no prime, no arrow, nothing that it would skip."""
    if not _ALPHABET.fullmatch(text) or _NOT_READ.search(text):
        return False
    plain = re.sub(r"\\(?:begin|end|mathbb) *\{[^{}]*\}|\\[a-zA-Z]+", " ", text)
    return (
        not any(_is_word(word[0]) for word in _WORD.finditer(plain))
        and not _SHORT_WORD.search(plain)
        and formula(text) is not None
    )


def _is_word(letters: str) -> bool:
    """Whether the letters are a word; abc, zyx and nRT are products of variables."""
    places = sorted(map(ord, letters))
    in_a_row = places == list(range(places[0], places[0] + len(letters)))
    return len(letters) > 4 or (not in_a_row and not set("aeiouy").isdisjoint(letters.casefold()))


def is_constant(text: str) -> bool:
    """Whether it is a formula without variables."""
    expression = formula(text)
    return isinstance(expression, (Basic, MatrixBase)) and not expression.free_symbols


def is_variable(text: str) -> bool:
    """Whether it is the name of a variable."""
    return bool(_VARIABLE.fullmatch(text))


@lru_cache(maxsize=1024)
def formula(text: str) -> Any:
    """The expression that math-verify reads, or None."""
    value = number(text)
    if value is not None:
        return value if value.is_Integer else Float(text.replace(" ", ""))
    text = _PRODUCT.sub(r"\1\\cdot ", text)
    parsed = parse(rf"\boxed{{{text}}}", extraction_config=[_LATEX], fallback_mode="no_fallback", parsing_timeout=0)
    expression = parsed[0] if parsed and isinstance(parsed[0], (Basic, MatrixBase)) else None
    if isinstance(expression, Basic):
        imaginary = {symbol: I for symbol in expression.free_symbols if str(symbol) == "i"}
        with contextlib.suppress(TypeError):  # i < 0
            expression = expression.xreplace(imaginary)
    return expression


def region(text: str) -> str | None:
    """LaTeX of the set of numbers that a formula describes as a relation or by set operations; None for others."""
    expression = formula(text)
    try:
        numbers = expression.as_set() if isinstance(expression, Relational) else expression.doit()
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    kinds = (FiniteSet, Interval)
    parts = numbers.args if isinstance(numbers, Union) else (numbers,)
    known = all(isinstance(part, kinds) and not part.free_symbols for part in parts)
    return latex(numbers) if known else None


def same(gold: str, answer: str) -> bool:
    """Whether two formulas have one value, or are one relation or matrix."""
    exact = number(gold), number(answer)
    if None not in exact:
        return exact[0] == exact[1]
    one, other = formula(gold), formula(answer)
    return one is not None and other is not None and _kind(one) is _kind(other) and _same(one, other)


def _kind(item: Any) -> type:
    """The kind of an expression; only equal kinds are compared, as math-verify takes {7} for 7."""
    return next((kind for kind in (MatrixBase, Boolean, Set, Tuple) if isinstance(item, kind)), Basic)


def _same(gold: Any, answer: Any) -> bool:
    """math-verify's verdict; a yes must hold for the exact numbers too.

    math-verify rounds decimals to six places and ignores differences below 1e-14, so it finds all small numbers equal.
    A yes is therefore checked again with decimals as fractions and more digits for small numbers.
    """
    if any(item in (S.NaN, S.ComplexInfinity) for item in (gold, answer)) or not verify(
        gold, answer, timeout_seconds=0
    ):
        return False
    if _close(gold, answer):
        return True
    gold, answer = _exact(gold), _exact(answer)
    digits = _DIGITS + math.ceil(sum(-min(0.0, size) for item in (gold, answer) for size in _sizes(item)))
    return verify(gold, answer, numeric_precision=digits, timeout_seconds=0)


def _close(gold: Any, answer: Any) -> bool:
    """Whether two numbers with decimals agree in all their digits: e^{0.5} is rounded when it is read."""
    numbers = [item for item in (gold, answer) if isinstance(item, Basic) and item.is_number]
    if len(numbers) < 2 or not any(item.has(Float) for item in numbers):
        return False
    a, b = (_exact(item).doit().evalf(2 * _DIGITS) for item in numbers)
    return bool(a.is_finite and b.is_finite and abs(a - b) <= _CLOSE * max(abs(a), abs(b)))


def _exact(item: Any) -> Any:
    """The expression with fractions for decimals, otherwise unevaluated."""
    if isinstance(item, MatrixBase):
        return item.applyfunc(_exact)
    if not isinstance(item, Basic) or not item.has(Float):
        return item
    if isinstance(item, Float):
        return Rational(str(item)) if item.is_finite else item
    parts = [_exact(part) for part in getattr(item, "_unsorted_args", item.args)]
    return item.func(*parts, evaluate=False) if isinstance(item, Relational) else item.func(*parts)


def _sizes(item: Any) -> Iterator[float]:
    """The power of ten of each number in the expression, of each term of a sum; 0 for 0."""
    if not isinstance(item, (Basic, MatrixBase)):
        return
    expression: Any = item
    if getattr(item, "is_number", False) and not isinstance(item, Add):
        size = abs(expression.evalf(_DIGITS))
        yield float(log(size, 10)) if size.is_Float and size.is_finite and size != 0 else 0.0
        return
    for part in expression.flat() if isinstance(item, MatrixBase) else expression.args:
        yield from _sizes(part)

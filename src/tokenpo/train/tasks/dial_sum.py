"""dial_sum: left-to-right arithmetic on a dial (modulo 10), where writing small steps pays.

A prompt is `3-9+6*6-1*8*8-9=`: no precedence, every result taken modulo `modulus`. A worked solution copies the
expression and after every operand either writes the partial result and goes on from it (a small step), or leaps on:

    3-9=4;4+6=0;0*6=0;0-1=9;9*8=2;2*8=6;6-9=7#7         every step small: each is one fact of a table
    3-9+6*6=0;0-1*8*8=6;6-9#7                           five leaps: several operations done at once, in the head

Only the value after the last `#` counts. A model warmed up on solutions that leap with probability `leap` knows the
facts, is often wrong when it leaps, and is uncertain where it decides between step and leap; the reward can teach it to
write more steps.

Harder: more `operands`, a larger `modulus` (values above 9 are written a, b, ...), a larger `leap`. The last two need a
model that was warmed up on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, product

from ...base.errors import TokenPOError
from .types import Generated, Problem, Score, Split

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
OPERATORS = "+-*"
_TEST_SHARE = 26  # of 256: about a tenth of all expressions is held out, whatever the seed
_COUNTED = 2_000  # largest number of expressions of which the held-out ones are counted
_TRIES = 10_000  # draws for one position: if one expression in a hundred is held out, they miss it once in 10**43


@dataclass(frozen=True)
class DialSum(Generated):
    """Left-to-right arithmetic on a dial, where writing small steps pays: `3-9+6*6=` ends with `#0`.

    Args:
        operands: their number; or a pair (fewest, most), from which it is drawn uniformly per problem.
        modulus: 2 to 36; operands are 1 ... modulus - 1, results 0 ... modulus - 1, each one character.
        leap: probability of a leap after an operand, in worked solutions only (the warm-up's data).
        seed: of the order of problems. Whether an expression is held out doesn't depend on it.

    Raises:
        TokenPOError: an option out of its range.
    """

    operands: int | Sequence[int] = 8
    modulus: int = 10
    leap: float = 0.6
    seed: int = 0
    name: str = "dial_sum"

    def __post_init__(self) -> None:
        numbers = [self.operands] if isinstance(self.operands, int) else list(self.operands)
        in_range = 1 <= len(numbers) <= 2 and all(isinstance(number, int) and 2 <= number <= 64 for number in numbers)
        for name, fits, expected in (
            ("operands", in_range, "a number, or a pair of them, in 2..64"),
            ("operands", not in_range or numbers == sorted(numbers), "the fewest first, then the most"),
            ("modulus", 2 <= self.modulus <= len(DIGITS), f"in 2..{len(DIGITS)}"),
            ("leap", 0 <= self.leap <= 1, "a probability in 0..1"),
        ):
            if not fits:
                raise TokenPOError(f"dial_sum: {name}={getattr(self, name)!r} must be {expected}")

    @cached_property
    def test_size(self) -> int | None:
        low, high = self._lengths
        lengths = range(low, high + 1)
        if sum((self.modulus - 1) ** n * len(OPERATORS) ** (n - 1) for n in lengths) > _COUNTED:
            return None
        digits = DIGITS[1 : self.modulus]
        spaces = [[digits, *[OPERATORS, digits] * (n - 1)] for n in lengths]
        return sum(_held_out("".join(parts)) for space in spaces for parts in product(*space))

    def judge(self, problem: Problem, completion: str) -> Score:
        """Reward 1 if the text after the last `#` is exactly the answer, else 0."""
        return judge(problem.answer, completion)

    def solution(self, problem: Problem, draw: int = 0) -> str:
        """A worked solution; another `draw` leaps elsewhere."""
        first, *rest = _operations(str(problem.prompt))
        value, text = DIGITS.index(first[1]), first[1]
        leaps = _stream(f"leap/{self.seed}/{draw}/{problem.prompt}")
        for position, (operator, digit) in enumerate(rest, start=1):
            value = _apply(value, operator, DIGITS.index(digit), self.modulus)
            text += operator + digit
            if _below(leaps, 2**32) >= self.leap * 2**32:
                last = position == len(rest)
                text += f"={DIGITS[value]}" if last else f"={DIGITS[value]};{DIGITS[value]}"
        return f"{text}#{DIGITS[value]}"

    @property
    def _lengths(self) -> tuple[int, int]:
        numbers = [self.operands] if isinstance(self.operands, int) else self.operands
        return numbers[0], numbers[-1]

    @property
    def repeats(self) -> int:
        # If their number is known, this many draws find all of them.
        return 1000 * self.test_size if self.test_size else _TRIES

    @property
    def about(self) -> str:
        return f"dial_sum with operands={self.operands!r} and modulus={self.modulus}"

    def draw(self, split: Split, position: int) -> Problem:
        numbers = _stream(f"problem/{self.seed}/{split}/{position}")
        low, high = self._lengths
        for _ in range(_TRIES):
            length = low + _below(numbers, high - low + 1)
            expression = DIGITS[1 + _below(numbers, self.modulus - 1)]
            for _ in range(length - 1):
                expression += OPERATORS[_below(numbers, 3)] + DIGITS[1 + _below(numbers, self.modulus - 1)]
            if _held_out(expression) == (split == "test"):
                return Problem(prompt=f"{expression}=", answer=DIGITS[evaluate(expression, self.modulus)])
        about = f"operands={self.operands!r} and modulus={self.modulus} leave no {split} problem"
        raise TokenPOError(f"dial_sum: {about}: give more operands, or a larger modulus")


def evaluate(expression: str, modulus: int = 10) -> int:
    """The value of `expression` on the dial, from left to right.

    >>> evaluate("3-9+6*6-1*8*8-9")
    7
    """
    value = 0
    for operator, digit in _operations(expression):
        value = _apply(value, operator, DIGITS.index(digit), modulus)
    return value


def _operations(expression: str) -> list[tuple[str, str]]:
    """("+", first operand), then every (operator, operand)."""
    text = "+" + expression.rstrip("=")
    return list(zip(text[::2], text[1::2], strict=True))


def _apply(value: int, operator: str, operand: int, modulus: int) -> int:
    results = {"+": value + operand, "-": value - operand, "*": value * operand}
    return results[operator] % modulus


def judge(reference: str, completion: str) -> Score:
    """Reward 1 if the text after the last `#` is exactly the reference; note "no answer" if it isn't one character."""
    _, mark, answer = completion.rpartition("#")
    correct = bool(mark) and answer == reference
    readable = bool(mark) and len(answer) == 1
    return Score(float(correct), correct, "" if readable else "no answer", answer if readable else None)


def _held_out(expression: str) -> bool:
    return hashlib.blake2b(expression.encode(), digest_size=1).digest()[0] < _TEST_SHARE


def _stream(key: str) -> Iterator[int]:
    """Endless 32-bit numbers from a hash: the same in every version of Python, which `random` does not promise."""
    for block in count():
        digest = hashlib.blake2b(f"{key}/{block}".encode()).digest()
        yield from (int.from_bytes(digest[i : i + 4], "big") for i in range(0, len(digest), 4))


def _below(numbers: Iterator[int], bound: int) -> int:
    return next(numbers) * bound >> 32

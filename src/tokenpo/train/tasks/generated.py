"""The tasks that this package generates: arithmetic on a dial, with and without a calculator, and sums in words.

The dial (`DialSum`) is left-to-right arithmetic modulo 10, where writing small steps pays. A worked solution copies the
expression of the prompt and after every operand either writes the partial result and goes on from it, or leaps on:

    3-9=4;4+6=0;0*6=0;0-1=9;9*8=2;2*8=6;6-9=7#7         every step small: each is one fact of a table
    3-9+6*6=0;0-1*8*8=6;6-9#7                           five leaps: several operations done at once, in the head

Only the value after the last `#` counts. A model warmed up on solutions that leap with probability `leap` knows the
facts, is often wrong when it leaps, and is uncertain where it decides between step and leap; the reward can teach it to
write more steps. More `operands`, a larger `modulus` or `leap` are harder; the last two need a model warmed up on them.

With a calculator (`DialCalculator`, for turn-level credit) the answer is inserted wherever a response writes `=` after
an expression; it is no token of the response:

    3-9+6=[0];0*6-1=[9];9*8=[2]#2       three calls, the last one just before the answer
    3-9+6=[0];0*6-1*8#4                 one call, and a leap in the head after it

A call is right if it does at least one operation from where the last one ended; it earns `call_reward`.
"""

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, product

from ...base.errors import TokenPOError
from .types import Problem, Score, Split, Turn, require_held_out

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
OPERATORS = "+-*"
_TEST_SHARE = 26  # of 256: about a tenth of all problems is held out, whatever the seed
_TRIES = 10_000  # draws for one position: if one problem in a hundred is held out, they miss it once in 10**43
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Generated(ABC):
    """A task that draws its problems; a subclass has `about`, `draw`, `judge` and `test_size`."""

    @property
    @abstractmethod
    def about(self) -> str:
        """Name and options, for messages."""

    @abstractmethod
    def draw(self, split: Split, position: int) -> Problem:
        """The problem at a position of the order; those of the test split may repeat."""

    @abstractmethod
    def judge(self, problem: Problem, completion: str) -> Score: ...

    @cached_property
    @abstractmethod
    def test_size(self) -> int | None:
        """Number of held-out problems, if they are few enough to count; else None."""

    @cached_property
    def _tests(self) -> tuple[dict[str, Problem], Iterator[int]]:
        """The distinct test problems found so far, by prompt, and the positions that are left to draw."""
        return {}, count()

    def problems(self, split: Split, start: int, count: int) -> list[Problem]:
        """As `Task.problems`; raises TokenPOError if the options leave no problem, or too few, for the split."""
        end = start + count
        if split == "train":
            return [self.draw(split, position) for position in range(start, end)]
        if self.test_size:
            require_held_out(self.about, self.test_size, end)
        (found, positions), repeated = self._tests, 0
        while len(found) < end and repeated < (1000 * self.test_size if self.test_size else _TRIES):
            problem = self.draw(split, next(positions))
            repeated = repeated + 1 if repr(problem.prompt) in found else 0
            found.setdefault(repr(problem.prompt), problem)
        require_held_out(f"{self.about}, as far as was searched,", len(found), end)
        return list(found.values())[start:end]

    def score(self, problems: list[Problem], completions: list[str], completion_ids: list[list[int]]) -> list[Score]:
        return [self.judge(problem, text) for problem, text in zip(problems, completions, strict=True)]

    def close(self) -> None:  # noqa: B027
        """Nothing to end."""


def _held_out(problem: str) -> bool:
    return hashlib.blake2b(problem.encode(), digest_size=1).digest()[0] < _TEST_SHARE


@dataclass(frozen=True)
class DialSum(Generated):
    """Left-to-right arithmetic on a dial, where writing small steps pays: `3-9+6*6=` ends with `#0`.

    Args:
        operands: their number; or a pair (fewest, most), from which it is drawn uniformly per problem.
        modulus: 2 to 36; operands are 1 ... modulus - 1, results 0 ... modulus - 1, each one character.
        leap: probability of a leap after an operand, in worked solutions only (the warm-up's data).
        seed: of the order of problems. Whether an expression is held out doesn't depend on it.
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
            ("operands", in_range and numbers == sorted(numbers), "a number in 2..64, or two: the fewest and the most"),
            ("modulus", 2 <= self.modulus <= len(DIGITS), f"in 2..{len(DIGITS)}"),
            ("leap", 0 <= self.leap <= 1, "a probability in 0..1"),
        ):
            if not fits:
                raise TokenPOError(f"dial_sum: {name}={getattr(self, name)!r} must be {expected}")

    @property
    def about(self) -> str:
        return f"dial_sum with operands={self.operands!r} and modulus={self.modulus}"

    @property
    def _lengths(self) -> range:
        numbers = [self.operands] if isinstance(self.operands, int) else self.operands
        return range(numbers[0], numbers[-1] + 1)

    @cached_property
    def test_size(self) -> int | None:
        if sum((self.modulus - 1) ** n * len(OPERATORS) ** (n - 1) for n in self._lengths) > 2_000:
            return None
        digits = DIGITS[1 : self.modulus]
        spaces = [[digits, *[OPERATORS, digits] * (n - 1)] for n in self._lengths]
        return sum(_held_out("".join(parts)) for space in spaces for parts in product(*space))

    def draw(self, split: Split, position: int) -> Problem:
        numbers = _stream(f"problem/{self.seed}/{split}/{position}")
        for _ in range(_TRIES):
            length = self._lengths[_below(numbers, len(self._lengths))]
            expression = DIGITS[1 + _below(numbers, self.modulus - 1)]
            for _ in range(length - 1):
                expression += OPERATORS[_below(numbers, 3)] + DIGITS[1 + _below(numbers, self.modulus - 1)]
            if _held_out(expression) == (split == "test"):
                return Problem(prompt=f"{expression}=", answer=DIGITS[evaluate(expression, self.modulus)])
        raise TokenPOError(f"{self.about} leaves no {split} problem: give more operands, or a larger modulus")

    def judge(self, problem: Problem, completion: str) -> Score:
        """Reward 1 if the text after the last `#` is exactly the answer; "no answer" if it isn't one character."""
        _, mark, answer = completion.rpartition("#")
        correct, readable = bool(mark) and answer == problem.answer, bool(mark) and len(answer) == 1
        return Score(float(correct), correct, "" if readable else "no answer", answer if readable else None)

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


def _stream(key: str) -> Iterator[int]:
    """Endless 32-bit numbers from a hash: the same in every version of Python, which `random` does not promise."""
    for block in count():
        digest = hashlib.blake2b(f"{key}/{block}".encode()).digest()
        yield from (int.from_bytes(digest[i : i + 4], "big") for i in range(0, len(digest), 4))


def _below(numbers: Iterator[int], bound: int) -> int:
    return next(numbers) * bound >> 32


@dataclass(frozen=True)
class DialCalculator(DialSum):
    """Left-to-right arithmetic on a dial with a calculator: `=` after an expression calls it.

    Args:
        call_reward: reward of a right call, added to 1 for the right answer; at most once for each operation.
    """

    call_reward: float = 0.0
    name: str = "dial_calculator"

    calls = "="

    def reply(self, problem: Problem, completion: str) -> str | None:
        """The value of the expression between the last `;` and the `=` that ends the completion."""
        expression, digits = completion.removesuffix(self.calls).rpartition(";")[2], DIGITS[: self.modulus]
        sound = len(expression) % 2 == 1 and all(x in (digits, OPERATORS)[i % 2] for i, x in enumerate(expression))
        called = completion.endswith(self.calls) and sound
        return DIGITS[evaluate(expression, self.modulus)] if called else None

    def judge(self, problem: Problem, completion: str) -> Score:
        """Reward 1 if the text after the last `#` is exactly the answer, and `call_reward` for each right call."""
        answer = super().judge(problem, completion)
        *calls, last = self._turns(problem, completion)
        earned = math.fsum(turn.reward for turn in calls)
        rewards = {"calls": earned, "answer": answer.reward}
        turns = (*calls, Turn(answer.reward, last.state))
        return Score(answer.reward + earned, answer.correct, answer.note, answer.answer, rewards, turns)

    def _turns(self, problem: Problem, completion: str) -> Iterator[Turn]:
        """A turn for every call of the completion, and one for the text after the last call."""
        state, at = str(problem.prompt), 0
        left, carry = state.rstrip("=")[1:], state[0]
        while (at := completion.find(self.calls, at) + 1) > 0:
            value = self.reply(problem, completion[:at])
            if value is None:
                continue
            expression = completion[: at - 1].rpartition(";")[2]
            done = expression.removeprefix(carry)
            right = bool(done) and expression.startswith(carry) and left.startswith(done)
            yield Turn(self.call_reward * right, state)
            left, carry = (left[len(done) :], value) if right else (left, "")
            at += len(value)
            # After a right call the state is the value and the operations left; after a wrong one, the whole text.
            state = f"{value}{left}=" if right else completion[:at]
        yield Turn(0.0, state)


@dataclass(frozen=True)
class Sums(Generated):
    """Two numbers to add, asked as a chat; the last number of a response is its answer.

    Args:
        digits: of both numbers, 1 to 9; the first is not 0.
        seed: of the order of problems. Whether a pair is held out doesn't depend on it.
    """

    digits: int = 2
    seed: int = 0
    name: str = "sums"

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= 9:
            raise TokenPOError(f"sums: digits={self.digits} must be in 1..9")

    @property
    def about(self) -> str:
        return f"sums with digits={self.digits}"

    @property
    def _numbers(self) -> range:
        return range(10 ** (self.digits - 1), 10**self.digits)

    @cached_property
    def test_size(self) -> int | None:
        pairs = product(self._numbers, repeat=2) if self.digits < 3 else ()
        return sum(_held_out(f"{a}+{b}") for a, b in pairs) or None

    def draw(self, split: Split, position: int) -> Problem:
        low, span = self._numbers.start, len(self._numbers)
        for attempt in range(_TRIES):
            key = f"sums/{self.seed}/{split}/{position}/{attempt}"
            digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
            a, b = (low + int.from_bytes(part) * span // 2**64 for part in (digest[:8], digest[8:]))
            if _held_out(f"{a}+{b}") == (split == "test"):
                asked = f"What is {a} + {b}? Give only the number."
                return Problem(prompt=[{"role": "user", "content": asked}], answer=str(a + b))
        raise TokenPOError(f"{self.about} leaves no {split} problem: give more digits")

    def judge(self, problem: Problem, completion: str) -> Score:
        """Reward 1 if the last number is the sum, else 0."""
        answer = _NUMBER.findall(completion.replace(",", ""))[-1:]
        correct = answer == [problem.answer]
        return Score(float(correct), correct, "" if answer else "no answer", *answer)

"""sums: two numbers to add, asked in words as a chat; for instruction-tuned models."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property

from ...base.errors import TokenPOError
from .types import Generated, Problem, Score, Split

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_TEST_SHARE = 26  # of 256: about a tenth of all pairs is held out, whatever the seed
_COUNTED = 100  # numbers up to which the held-out pairs are counted
_TRIES = 10_000


@dataclass(frozen=True)
class Sums(Generated):
    """Two numbers to add, asked as a chat; the last number of a response is its answer.

    Args:
        digits: of both numbers, 1 to 9; the first is not 0.
        seed: of the order of problems. Whether a pair is held out doesn't depend on it.

    Raises:
        TokenPOError: digits out of range.
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
    def repeats(self) -> int:
        return 1000 * self.test_size if self.test_size else _TRIES

    @cached_property
    def test_size(self) -> int | None:
        low, high = self._range
        if high > _COUNTED:
            return None
        return sum(_held_out(a, b) for a in range(low, high) for b in range(low, high))

    @property
    def _range(self) -> tuple[int, int]:
        return 10 ** (self.digits - 1), 10**self.digits

    def draw(self, split: Split, position: int) -> Problem:
        low, high = self._range
        for attempt in range(_TRIES):
            key = f"sums/{self.seed}/{split}/{position}/{attempt}"
            digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
            a, b = (low + int.from_bytes(part) * (high - low) // 2**64 for part in (digest[:8], digest[8:]))
            if _held_out(a, b) == (split == "test"):
                asked = f"What is {a} + {b}? Give only the number."
                return Problem(prompt=[{"role": "user", "content": asked}], answer=str(a + b))
        raise TokenPOError(f"{self.about} leave no {split} problem: give more digits")

    def judge(self, problem: Problem, completion: str) -> Score:
        """Reward 1 if the last number is the sum, else 0."""
        answer = _NUMBER.findall(completion.replace(",", ""))[-1:]
        correct = answer == [problem.answer]
        return Score(float(correct), correct, "" if answer else "no answer", *answer)


def _held_out(a: int, b: int) -> bool:
    return hashlib.blake2b(f"{a}+{b}".encode(), digest_size=1).digest()[0] < _TEST_SHARE

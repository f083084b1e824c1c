"""dial_calculator: the dial with a calculator that a response may call, for credit that knows turns.

The prompt is one of dial_sum, `3-9+6*6-1*8=`. Wherever a response writes `=` after an expression, the calculator's
answer is inserted, and the response goes on; the answer is no token of the response:

    3-9+6=[0];0*6-1=[9];9*8=[2]#2       three calls, the last one just before the answer
    3-9+6=[0];0*6-1*8#4                 one call, and a leap in the head after it

A call is right where it takes up at least one operation from where the last one ended. What counts is the value after
the last `#`; a right call earns `call_reward` beside it. The shipped model, which was warmed up on dial_sum, writes
`=` where it would take a small step, and is wrong mostly where it leaps at the end; it can learn to call instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..base.errors import TokenPOError
from .dial_sum import DIGITS, OPERATORS, DialSum, evaluate, judge
from .types import Problem, Score, Turn


class _Call(NamedTuple):
    """A call of a completion, and where the work stood when its turn began."""

    right: bool
    state: str


@dataclass(frozen=True)
class DialCalculator(DialSum):
    """Left-to-right arithmetic on a dial with a calculator: `=` after an expression calls it.

    Args:
        operands: how many; or a pair (fewest, most), drawn uniformly per problem.
        modulus: 2 to 36; operands are 1 ... modulus - 1, results 0 ... modulus - 1, each one character.
        call_reward: what a right call earns, beside 1 for the right answer; at most once for each operation.
        leap: probability of a leap after an operand, in worked solutions only (the warm-up's data).
        seed: another seed, another order of problems. Whether an expression is held out doesn't depend on it.

    Raises:
        TokenPOError: an option out of its range.
    """

    call_reward: float = 0.0
    name: str = "dial_calculator"

    calls = "="

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.call_reward):
            raise TokenPOError(f"dial_calculator: call_reward={self.call_reward!r} must be a finite number")

    def reply(self, problem: Problem, completion: str) -> str | None:
        """The value of the expression between the last `;` and the `=` that ends the completion."""
        expression = completion.removesuffix(self.calls).rpartition(";")[2]
        if not completion.endswith(self.calls) or not self._is_expression(expression):
            return None
        return DIGITS[evaluate(expression, self.modulus)]

    def score(self, problems: list[Problem], completions: list[str], completion_ids: list[list[int]]) -> list[Score]:
        """Reward 1 if what follows the last `#` is exactly the answer, and `call_reward` for each right call."""
        return [self._scored(problem, text) for problem, text in zip(problems, completions, strict=True)]

    def _scored(self, problem: Problem, completion: str) -> Score:
        found = list(self._followed(problem, completion))
        answer = judge(problem.answer, completion)
        earned = [self.call_reward * call.right for call in found]
        # The last entry is no call: what was written after the last one.
        turns = tuple(
            Turn(reward, call.state) for reward, call in zip([*earned[:-1], answer.reward], found, strict=True)
        )
        calls = math.fsum(earned[:-1])
        return Score(
            answer.reward + calls, answer.correct, answer.note, answer.answer,
            rewards={"calls": calls, "answer": answer.reward}, turns=turns,
        )  # fmt: skip

    def _followed(self, problem: Problem, completion: str) -> Iterator[_Call]:
        """Every call of the completion, and at the end what stands after the last one."""
        assert isinstance(problem.prompt, str)
        left, carry, state, at = problem.prompt.rstrip("=")[1:], problem.prompt[0], problem.prompt, 0
        while (at := completion.find(self.calls, at) + 1) > 0:
            value = self.reply(problem, completion[:at])
            if value is None:
                continue
            expression = completion[: at - 1].rpartition(";")[2]
            done = expression.removeprefix(carry)
            right = bool(done) and expression.startswith(carry) and left.startswith(done)
            yield _Call(right, state)
            left, carry = (left[len(done) :], value) if right else (left, "")
            at += len(value)
            # The same operations done, the same value: the same state. Off the way it is all that was written.
            state = f"{value}{left}=" if right else completion[:at]
        yield _Call(False, state)

    def _is_expression(self, text: str) -> bool:
        digits = DIGITS[: self.modulus]
        return len(text) % 2 == 1 and all(x in (digits, OPERATORS)[i % 2] for i, x in enumerate(text))

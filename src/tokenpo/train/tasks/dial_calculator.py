"""dial_calculator: the dial with a calculator that a response may call, for turn-level credit.

The prompt is one of dial_sum, `3-9+6*6-1*8=`. Wherever a response writes `=` after an expression, the calculator's
answer is inserted, and the response goes on; the answer is no token of the response:

    3-9+6=[0];0*6-1=[9];9*8=[2]#2       three calls, the last one just before the answer
    3-9+6=[0];0*6-1*8#4                 one call, and a leap in the head after it

A call is right if it does at least one operation from where the last one ended; it earns `call_reward` in addition to
the reward for the value after the last `#`. The shipped model writes `=` where it would take a small step, and is
mostly wrong where it leaps at the end; it can learn to call instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ...base.errors import TokenPOError
from .dial_sum import DIGITS, OPERATORS, DialSum, evaluate
from .types import Problem, Score, Turn


@dataclass(frozen=True)
class DialCalculator(DialSum):
    """Left-to-right arithmetic on a dial with a calculator: `=` after an expression calls it.

    Args:
        operands: their number; or a pair (fewest, most), from which it is drawn uniformly per problem.
        modulus: 2 to 36; operands are 1 ... modulus - 1, results 0 ... modulus - 1, each one character.
        call_reward: reward of a right call, added to 1 for the right answer; at most once for each operation.
        leap: probability of a leap after an operand, in worked solutions only (the warm-up's data).
        seed: of the order of problems. Whether an expression is held out doesn't depend on it.

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
        expression, digits = completion.removesuffix(self.calls).rpartition(";")[2], DIGITS[: self.modulus]
        sound = len(expression) % 2 == 1 and all(x in (digits, OPERATORS)[i % 2] for i, x in enumerate(expression))
        if not completion.endswith(self.calls) or not sound:
            return None
        return DIGITS[evaluate(expression, self.modulus)]

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

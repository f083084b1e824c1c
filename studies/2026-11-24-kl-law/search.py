"""Search: which operators make the target? Written as attempts, so that a policy can search well or badly.

A prompt is `3_5_9=2:`, worked from left to right on the dial (modulo 10). A worked response tries operators until one
fits, each attempt with its partial results and the target beside the last, and answers with the last operators:

    3+5=8+9=7~2!3*5=5-9=6~2!3+5=8*9=2~2#+*        two attempts that fail, then one that fits
    3+5=8+9=7~2#++                                an answer that is given though the attempt failed

Any operators that make the target are right. The worked solutions of the warm-up draw every attempt anew (so they
repeat themselves), give up with probability `give_up` after a failed one, and leap over the partial results with
probability `leap`: a policy can learn not to repeat, not to give up and not to leap.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

OPERATORS = "+-*"


def apply(value: int, operator: str, operand: int) -> int:
    return {"+": value + operand, "-": value - operand, "*": value * operand}[operator] % 10


def value(digits: str, operators: str) -> int:
    """From left to right, modulo 10."""
    total = int(digits[0])
    for operator, digit in zip(operators, digits[1:], strict=True):
        total = apply(total, operator, int(digit))
    return total


def problem(draw: random.Random, operands: tuple[int, int] = (3, 4)) -> str:
    """A prompt that at least one choice of operators answers."""
    digits = "".join(str(draw.randint(1, 9)) for _ in range(draw.randint(*operands)))
    target = value(digits, "".join(draw.choice(OPERATORS) for _ in digits[1:]))
    return f"{'_'.join(digits)}={target}:"


def parts(prompt: str) -> tuple[str, int]:
    """Digits and target."""
    left, right = prompt.rstrip(":").split("=")
    return left.replace("_", ""), int(right)


def solution(prompt: str, draw: random.Random, give_up: float = 0.2, leap: float = 0.2) -> str:
    """A worked response; see above."""
    digits, target = parts(prompt)
    text = ""
    while True:
        operators = "".join(draw.choice(OPERATORS) for _ in digits[1:])
        total, steps, leaps = int(digits[0]), digits[0], draw.random() < leap
        for i, (operator, digit) in enumerate(zip(operators, digits[1:], strict=True), start=2):
            total = apply(total, operator, int(digit))
            steps += operator + digit + ("" if leaps and i < len(digits) else f"={total}")
        text += f"{steps}~{target}"
        if total == target or draw.random() < give_up or len(text) > 100:
            return f"{text}#{operators}"
        text += "!"


def right(prompt: str, completion: str) -> bool:
    """Whether what follows the last # makes the target."""
    digits, target = parts(prompt)
    _, mark, operators = completion.rpartition("#")
    fits = bool(mark) and len(operators) == len(digits) - 1 and set(operators) <= set(OPERATORS)
    return fits and value(digits, operators) == target


def reward(prompts: list[Any], completions: list[str], **_: Any) -> list[float]:
    """1 for a right answer, else 0."""
    return [float(right(str(prompt), text)) for prompt, text in zip(prompts, completions, strict=True)]


def write(directory: Path, train: int = 5000, test: int = 300) -> None:
    """Writes train.jsonl and test.jsonl: no prompt twice, none in both."""
    draw, prompts = random.Random(0), dict[str, None]()
    while len(prompts) < train + test:
        prompts[problem(draw, (3, 4))] = None
    for name, of in (("test", list(prompts)[:test]), ("train", list(prompts)[test:])):
        lines = (json.dumps({"prompt": prompt}) + "\n" for prompt in of)
        (directory / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")

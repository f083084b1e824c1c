"""The task of the study: half its prompts are dial_sum, half are search (2026-11-24-kl-law/search.py), in one file.

A dial prompt ends with `=`, a search prompt with `:`, so that one reward function serves both.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from tokenpo.tasks.dial_sum import DIGITS, DialSum, evaluate, judge

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "2026-11-24-kl-law"))
import search


def right(prompt: str, completion: str) -> bool:
    if prompt.endswith(":"):
        return search.right(prompt, completion)
    return judge(DIGITS[evaluate(prompt)], completion).correct


def reward(prompts: list[Any], completions: list[str], **_: Any) -> list[float]:
    """1 for a right answer, else 0."""
    return [float(right(str(prompt), text)) for prompt, text in zip(prompts, completions, strict=True)]


def write(directory: Path, operands: tuple[int, int], train: int = 6000, test: int = 256) -> None:
    """Writes train.jsonl and test.jsonl, each half dial and half search: no prompt twice, none in both.

    Args:
        operands: fewest and most of a dial prompt. Its test prompts are none of the warm-up's.
    """
    dial, draw, found = DialSum(operands=operands), random.Random(0), dict[str, None]()
    while len(found) < (train + test) // 2:
        found[search.problem(draw)] = None
    searches = list(found)
    for name, count, first in (("test", test, 0), ("train", train, test // 2)):
        dials = dict.fromkeys(str(x.prompt) for x in dial.problems(name, 0, count))
        pairs = zip(dials, searches[first : first + count // 2], strict=False)
        lines = (json.dumps({"prompt": prompt}) + "\n" for pair in pairs for prompt in pair)
        (directory / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")

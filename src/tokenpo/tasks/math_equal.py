"""Compares a completion with a reference by math-verify; runs inside a verifier process and imports nothing of ours."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from math_verify import parse, verify

# Its own time limits are off (0): they need signals of a main thread, and the pool kills from outside.

logging.disable(logging.WARNING)  # it warns of that


def equal(references: list[str], text: str) -> list[Any]:
    """[whether `text` gives one of `references`, note]; the last boxed answer, else the last expression, counts."""
    answer = parse(text, parsing_timeout=0)
    if not answer:
        return [False, "no answer"]
    known = [_reference(reference) for reference in references]
    if not all(known):
        return [False, "unreadable reference"]
    return [any(verify(gold, answer, timeout_seconds=0) for gold in known), ""]


@lru_cache(maxsize=1024)
def _reference(text: str) -> Any:
    """Bare LaTeX such as x^2+1 is only found by math-verify inside a box."""
    bare = "$" not in text and r"\boxed" not in text
    return (bare and parse(rf"\boxed{{{text}}}", parsing_timeout=0)) or parse(text, parsing_timeout=0)

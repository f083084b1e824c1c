"""A hundred of the answers of benchmarks/verifiers.py: nothing crashes, hangs, or is worth 1.0 wrongly."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenpo.tasks.types import Problem
from tokenpo.tasks.verify import Verifier, VerifierOptions, make_verifier

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hostile() -> Any:
    spec = importlib.util.spec_from_file_location("hostile_answers", ROOT / "benchmarks" / "verifiers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_answer_is_worth_one_wrongly_and_what_hangs_is_killed(hostile: Any) -> None:
    """The kinds that take no time, and of those that may take forever a few, whose worker is killed and replaced."""
    quick = [a for a in hostile.answers(110, 1) if a.kind not in ("deep", "powers", "long")]
    bombs = [
        hostile.Answer("powers", r"\boxed{9^{9^{9^{9}}}}", "42", False),
        hostile.Answer("deep", r"\boxed{" + r"\sqrt{" * 3000 + "43" + "}" * 3000 + "}", "42", False),
        hostile.Answer("long", "{" * 10**6 + r"\boxed{43}", "42", False),
        hostile.Answer("odd_text", r"\boxed{" + "\ud800" + "}", "42", False),
    ]
    some = [*quick[:60], *bombs, *quick[60:]]
    scores, took = hostile.judge(some, 2.0, 1)
    assert len(scores) == len(some) > 95
    wrong = [(a.text[:80], a.reference) for a, s in zip(some, scores, strict=True) if s.reward == 1.0 and not a.right]
    assert not wrong
    assert {s.reward for s in scores} == {0.0, 1.0}
    missed = [a.text for a, s in zip(some, scores, strict=True) if a.right and not s.correct]
    assert not missed
    assert max(took) < 2.0 + 5 * hostile.SLACK  # a machine may be busy; benchmarks/verifiers.py is strict


def test_the_last_box_counts(math: Verifier) -> None:
    texts = {r"\boxed{1} no: \boxed{2}": "2", r"\boxed{2}, \boxed{1}": "1", r"\boxed{1} and \boxed{2}": "2"}
    for text, last in texts.items():
        problems = [Problem("?", reference) for reference in ("1", "2")]
        assert [s.correct for s in math(problems, [text] * 2, [[]] * 2)] == [last == "1", last == "2"]


@pytest.mark.parametrize("name", ["exact", "countdown", "knights_knaves"])
def test_the_other_verifiers_take_anything(hostile: Any, name: str) -> None:
    answers = {"countdown": 24, "knights_knaves": "Ann is a knight, Bob is a knave"}
    columns = {"nums": [2, 3, 4, 1], "target": 24, "names": ["Ann", "Bob"]}
    verifier = make_verifier(name, VerifierOptions(), "t")
    for answer in hostile.answers(600, 2):
        reference = answers.get(name, answer.reference)
        (score,) = verifier([Problem("?", reference, columns)], [answer.text], [[]])
        assert score.reward == 0.0 or (name == "exact" and answer.right), answer.text[:80]

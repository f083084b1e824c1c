"""The verifiers of Countdown and of Knights & Knaves: right in any wording, and nothing that only looks right."""

from __future__ import annotations

import pytest

from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.tasks.types import Problem, Score
from tokenpo.tasks.verify import VerifierOptions, make_verifier, words


def judged(verifier: str, problem: Problem, said: str, extract: str = "") -> Score:
    [score] = make_verifier(verifier, VerifierOptions(extract), "t")([problem], [said], [[]])
    return score


@pytest.mark.parametrize(
    ("said", "correct", "note"),
    [
        ("<answer>(1+2)*3</answer>", True, ""),
        ("<answer> 3 * (2 + 1) </answer>", True, ""),
        ("<answer>3/1*2</answer>", False, ""),  # 6
        ("<answer>3*3</answer>", False, "malformed"),  # 9, but not from these numbers
        ("<answer>1+2+3+3</answer>", False, "malformed"),
        ("<answer>12-3</answer>", False, "malformed"),
        ("<answer>(1+2)*3 = 9</answer>", False, "malformed"),
        ("<answer>9</answer>", False, "malformed"),
        ("<answer>__import__('os')</answer>", False, "malformed"),
        ("<answer>3/(2-1-1)</answer>", False, "malformed"),
        ("(1+2)*3", False, "no answer"),
    ],
)
def test_countdown(said: str, correct: bool, note: str) -> None:
    problem = Problem("?", 9, {"nums": [3, 1, 2], "target": 9})
    assert judged("countdown", problem, said) == Score(float(correct), correct, note)


def test_countdown_in_fractions_with_other_columns_and_places() -> None:
    """8 / (3 - 8/3) = 24, which floats miss."""
    problem = Problem("?", "24", {"numbers": ["8", "3", "8", "3"]})
    assert judged("countdown", problem, r"\boxed{8/(3-8/3)}", "boxed") == Score(1.0, True)
    assert judged("countdown", problem, r"\boxed{ 8 / (3 - 8/3) }", "boxed").answer == "8/(3-8/3)"


def test_countdown_says_what_a_row_lacks() -> None:
    with pytest.raises(MissingInput, match="did you mean 'num'"):
        judged("countdown", Problem("?", 9, {"num": [1]}), "x")
    with pytest.raises(TokenPOError, match="list of whole numbers"):
        judged("countdown", Problem("?", 9, {"nums": "a b"}), "x")
    for target in ("1e999999999", "9" * 5000, "1/0", "nan", "1e", ""):
        with pytest.raises(TokenPOError, match="and a number, of 40 digits at most"):
            judged("countdown", Problem("?", target, {"nums": [1]}), "x")
    with pytest.raises(TokenPOError, match="list of whole numbers"):
        judged("countdown", Problem("?", 9, {"nums": [float("inf")]}), "x")
    for target in (9, 9.0, " 9 ", "18/2", "+0.9e1", "9e0"):
        assert judged("countdown", Problem("?", target, {"nums": [9]}), "<answer>9</answer>").correct
    for nums in ([3, 4], ["3", "4"], [3.0, 4.0], (3, 4)):
        assert judged("countdown", Problem("?", 12, {"nums": nums}), "<answer>3*4</answer>").correct


@pytest.mark.parametrize(
    ("said", "correct", "note"),
    [
        ("<answer>Zoey is a knave, and Michael is a knight.</answer>", True, ""),
        ("<answer>(1) Michael is a knight\n(2) Zoey is a knave</answer>", True, ""),
        ("<answer>Michael: knight; Zoey: knave</answer>", True, ""),
        ("<answer>Michael is a knave, and Zoey is a knave</answer>", False, ""),
        ("<answer>Michael is a knight</answer>", False, "malformed"),
        ("<answer>Michael is a knight, Zoey is a knave, Zoey is a knight</answer>", False, "malformed"),
        ("<answer>Michael is not a knight, Zoey is a knave</answer>", False, "malformed"),
        ("<answer>Michael is a knight, Bob is a knave</answer>", False, "malformed"),
        ("<answer></answer>", False, "no answer"),
        ("Michael is a knight, and Zoey is a knave", False, "no answer"),
    ],
)
def test_knights_and_knaves(said: str, correct: bool, note: str) -> None:
    problem = Problem("?", "Michael is a knight, and Zoey is a knave.")
    assert judged("knights_knaves", problem, said) == Score(float(correct), correct, note)


def test_the_order_of_names_is_no_other_answer() -> None:
    problem = Problem("?", "(1) Ann is a knight\n(2) Bob is a knave")
    texts = ["<answer>Bob is a knave, Ann is a knight</answer>", "<answer>Ann a knight. Bob a knave.</answer>"]
    assert {judged("knights_knaves", problem, text).answer for text in texts} == {"ann knight, bob knave"}
    assert words("Ann, and a knight") == ["ann", "knight"]
    with pytest.raises(TokenPOError, match=r"\[True, False\].*does not say who is what"):
        judged("knights_knaves", Problem("?", [True, False]), "x")


@pytest.mark.parametrize("nums", [[3.7, 4], [-3, 5], "34", [], ["3", "x"], [True, 4], None])
def test_countdown_wants_numbers_that_an_expression_can_name(nums: object) -> None:
    """A minus is an operation there, so that every answer with -3 would be malformed."""
    verifier = make_verifier("countdown", VerifierOptions(), "t")
    with pytest.raises(TokenPOError, match="must be a list of whole numbers of 0 or more and a number"):
        verifier.check([Problem("?", 12, {"nums": nums})])

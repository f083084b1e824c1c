"""The verifiers `exact` and `math`, that of countdown, and where an answer stands."""

import re
import resource
from pathlib import Path
from typing import Any, cast

import pytest

from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.train.tasks.extract import EXTRACTORS
from tokenpo.train.tasks.types import Problem, Score
from tokenpo.train.tasks.verify import Verifier, VerifierOptions, make_verifier, normalised, references, value_of


def scored(verifier: Verifier, *pairs: tuple[Any, str]) -> list[Score]:
    return verifier([Problem("?", answer) for answer, _ in pairs], [text for _, text in pairs], [[]] * len(pairs))


def test_exact() -> None:
    exact = make_verifier("exact", VerifierOptions(), "t")
    right = [
        ("42", r"so \boxed{42}"), (42, "<answer> 42. </answer>"), (42.0, "#### 42"), ("1,234", r"\boxed{1234}"),
        ("6 * 7 = 42\n#### 42", "#### $42$"), ("New York", "<answer>new\n york</answer>"),
        (["4", "four"], r"\boxed{Four}"),
    ]  # fmt: skip
    assert scored(exact, *right) == [Score(1.0, True)] * len(right)
    wrong = [("42", r"\boxed{142}"), ("(1,234)", r"\boxed{(1234)}"), ("1,23", r"\boxed{123}")]
    assert scored(exact, *wrong) == [Score(0.0, False)] * len(wrong)
    assert scored(exact, ("7", "it is 7")) == [Score(0.0, False, "no answer")]
    assert scored(make_verifier("exact", VerifierOptions(extract="hash"), "t"), ("7", "it is #7"))[0].correct
    assert [normalised(text) for text in ("$5", "-1,000.5", "A, B", "3.", "")] == ["5", "-1000.5", "a, b", "3", ""]
    assert references([1, [2.5, "x"]]) == ["1", "2.5", "x"]


@pytest.mark.parametrize(
    ("verifier", "options", "sentence"),
    [
        ("exakt", {}, "did you mean 'exact'"),
        ("exact", {"correct_at": 0.5}, "correct_at = 0.5 is ignored by the verifier 'exact', which takes extract: "),
        ("x.py:f", {"extract": "boxed"}, "extract = 'boxed' is ignored by the verifier 'x.py:f', which takes corr"),
    ],
)
def test_unknown_names_and_bad_or_ignored_options_are_refused(verifier: str, options: dict, sentence: str) -> None:
    with pytest.raises(TokenPOError, match=re.escape(sentence)):
        make_verifier(verifier, VerifierOptions(**options), "t")


def test_math_knows_equal_expressions_and_notes_the_rest(math: Verifier) -> None:
    right = [
        (r"\sqrt{2}/2", r"$\frac{1}{\sqrt{2}}$"),
        (r"so $\boxed{3}$", "3"),
        ([3, 4], "$4$"),
        ("72 #### 72", "#### 72"),
    ]
    assert scored(math, *right) == [Score(1.0, True)] * len(right)
    wrong = [("4", "5"), ("4", ""), ("4", "no number"), ("", "4")]
    notes = ["", "no answer", "no answer", "unreadable reference"]
    assert scored(math, *wrong) == [Score(0.0, False, note) for note in notes]


def test_math_with_an_extractor_gives_up_on_an_answer_that_takes_too_long() -> None:
    verifier = make_verifier("math", VerifierOptions(extract="tag", verifier_seconds=1, verifier_workers=1), "t")
    scored(verifier, ("1", "<answer>1</answer>"))
    long = r"<answer>2^{2^{2^{2^{100}}}}</answer>"
    scores = scored(verifier, ("x+1", "7 <answer>1+x</answer> 7"), ("7", "it is 7"), ("4", long))
    verifier.close()
    assert scores == [Score(1.0, True), Score(0.0, False, "no answer"), Score(0.0, False, "timeout")]


def test_every_verifier_says_what_it_read(math: Verifier) -> None:
    """What a majority vote counts: the same text for the same answer, None where there was none."""
    texts = [r"\boxed{0.5}", r"so $\frac{1}{2}$", r"\boxed{3}", "no number", ""]
    read = [score.answer for score in scored(math, *[(r"\frac{1}{2}", text) for text in texts])]
    assert read == ["1/2", "1/2", "3", None, None]
    exact = make_verifier("exact", VerifierOptions(), "t")
    assert [s.answer for s in scored(exact, ("7", r"\boxed{1,000.}"), ("7", "x"))] == ["1000", None]
    assert Score(1.0, True, answer="a") == Score(1.0, True, answer="b")
    # Python by itself refuses to write whole numbers of more than 4300 digits.
    [long] = scored(math, ("4", r"\boxed{" + "9" * 4400 + "}"))
    assert (long.correct, long.note, long.answer) == (False, "", "9" * 500)


def test_limits_reach_the_processes(math: Verifier, tmp_path: Path) -> None:
    assert scored(math, ("4", "$4$"))[0].correct
    pool = cast(Any, math)._pool
    assert pool.limit == 20
    (worker,) = pool._workers
    most, hard = resource.prlimit(worker.process.pid, resource.RLIMIT_AS)
    assert most == (4 * 2**30 if hard == resource.RLIM_INFINITY else min(4 * 2**30, hard))
    (tmp_path / "mine.py").write_text("def f(completions): return [1.0] * len(completions)")
    mine: Any = make_verifier(f"{tmp_path / 'mine.py'}:f", VerifierOptions(reward_seconds=7), "t")
    assert mine._pool.limit == 7
    mine.close()


EXTRACTED = {
    "tag": {
        "<answer>1</answer> no, <answer>\n 2 </answer> bye": "2", "<answer> </answer>": None, "<answer>2": None,
        "<think><answer>1</answer></think><answer>2</answer>": "2", "2</answer>": None,
        "<answer>42</answer> no: <answer>41": None,
    },
    "boxed": {
        r"\boxed{1} then \boxed{\frac{1}{2}} end": r"\frac{1}{2}", r"\boxed{1} then \boxed{2": None, r"\boxed{}": None,
        r"\boxed{42} \boxed": None, r"\boxed{\{1, 2\}}": r"\{1, 2\}", r"\fbox{7}": "7", r"1? </think> \boxed{2}": "2",
        r"\boxed{\left\{ 1 \right.}": r"\left\{ 1 \right.", "\\boxed{3}, no: \\boxed\n{7}": "7",
        r"<think>\boxed{1}</think> It is 2.": None, r"\boxed{1} <think> hmm": None,
    },
    "hash": {
        "3-9=4#4 then #7\nmore": "7", "#### 1,000 ": "1,000", "no mark": None, "7#": None, "<think>#1</think>": None,
    },
    "last_line": {"a\n b \n\n": "b", "\n ": None, "<think>1\n2": None},
    "auto": {
        "# Title\n<answer>5</answer>": "5", "# Title\nso 5": None, "x #### 5": "5", r"#### 1 \boxed{2}": "2",
        r"<answer>so \boxed{6}</answer>": "6", r"\boxed{1} no: <answer>2</answer>": "2", r"\boxed{42} <answer>": None,
        r"<answer>2</answer> no: \boxed{1}": "1", "<answer>42</answer> no: <answer>41": None, "<think>#### 1": None,
        r"First \boxed{3}. So \boxed {7}.": "7",
    },
    "whole": {" a b ": "a b", " ": None, "<thinking>1</thinking> 2": "2"},
}  # fmt: skip


@pytest.mark.parametrize("name", EXTRACTED)
def test_extractor(name: str) -> None:
    assert {text: EXTRACTORS[name](text) for text in EXTRACTED[name]} == EXTRACTED[name]


def judged(verifier: str, problem: Problem, said: str, extract: str = "") -> Score:
    [score] = make_verifier(verifier, VerifierOptions(extract), "t")([problem], [said], [[]])
    return score


@pytest.mark.parametrize(
    ("said", "correct", "note"),
    [
        ("<answer>(1+2)*3</answer>", True, ""), ("<answer> 3 * (2 + 1) </answer>", True, ""),
        ("<answer>3/1*2</answer>", False, ""),  # 6
        ("<answer>3*3</answer>", False, "malformed"),  # 9, but not from these numbers
        ("<answer>12-3</answer>", False, "malformed"), ("<answer>(1+2)*3 = 9</answer>", False, "malformed"),
        ("<answer>__import__('os')</answer>", False, "malformed"), ("(1+2)*3", False, "no answer"),
        ("<answer>3/(2-1-1)</answer>", False, "malformed"),
    ],
)  # fmt: skip
def test_countdown(said: str, correct: bool, note: str) -> None:
    problem = Problem("?", 9, {"nums": [3, 1, 2], "target": 9})
    assert judged("countdown", problem, said) == Score(float(correct), correct, note)


def test_only_arithmetic_has_a_value() -> None:
    texts = ("", "x", "2**3", "7//2", "1/0", "1.5", "0x10", "(1", "1,2", "[1]", "+1", "1" * 201, "٣")
    assert {text: value_of(text) for text in texts} == dict.fromkeys(texts)


def test_countdown_in_fractions_with_other_columns_and_places() -> None:
    """8 / (3 - 8/3) = 24, which floats miss."""
    problem = Problem("?", "24", {"numbers": ["8", "3", "8", "3"]})
    assert judged("countdown", problem, r"\boxed{8/(3-8/3)}", "boxed") == Score(1.0, True)
    assert judged("countdown", problem, r"\boxed{ 8 / (3 - 8/3) }", "boxed").answer == "8/(3-8/3)"


def test_countdown_says_what_a_row_lacks() -> None:
    with pytest.raises(MissingInput, match="did you mean 'num'"):
        judged("countdown", Problem("?", 9, {"num": [1]}), "x")
    targets = ((target, [1]) for target in ("1e999999999", "9" * 5000, "1/0", "nan", "1e", ""))
    # A minus is an operation, so every answer with -3 would be malformed.
    numbers = ((12, nums) for nums in ([3.7, 4], [-3, 5], "34", [], ["3", "x"], [True, 4], [float("inf")], None))
    for target, nums in (*targets, *numbers):
        with pytest.raises(TokenPOError, match="a list of whole numbers of 0 or more and a number, of 40 digits at mo"):
            make_verifier("countdown", VerifierOptions(), "t").check([Problem("?", target, {"nums": nums})])
    for target in (9, 9.0, " 9 ", "18/2", "+0.9e1", "9e0"):
        assert judged("countdown", Problem("?", target, {"nums": [9]}), "<answer>9</answer>").correct
    for nums in ([3, 4], ["3", "4"], [3.0, 4.0], (3, 4)):
        assert judged("countdown", Problem("?", 12, {"nums": nums}), "<answer>3*4</answer>").correct

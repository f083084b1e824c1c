"""The verifiers `exact` and `math`."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tokenpo.errors import UnknownName
from tokenpo.tasks.types import Problem, Score
from tokenpo.tasks.verify import Verifier, VerifierOptions, make_verifier, normalised, references


def scored(verifier: Verifier, *pairs: tuple[Any, str]) -> list[Score]:
    return verifier([Problem("?", answer) for answer, _ in pairs], [text for _, text in pairs], [[]] * len(pairs))


@pytest.mark.parametrize(
    ("answer", "text", "correct"),
    [
        ("42", r"so \boxed{42}", True),
        (42, "<answer> 42. </answer>", True),
        (42.0, "#### 42", True),
        ("6 * 7 = 42\n#### 42", "#### $42$", True),
        ("1,234", r"\boxed{1234}", True),
        ("New York", "<answer>new\n york</answer>", True),
        (["4", "four"], r"\boxed{Four}", True),
        ("42", r"\boxed{142}", False),
        ("(1,234)", r"\boxed{(1234)}", False),
        ("1,23", r"\boxed{123}", False),
    ],
)
def test_exact(answer: Any, text: str, correct: bool) -> None:
    assert scored(make_verifier("exact", VerifierOptions(), "t"), (answer, text)) == [Score(float(correct), correct)]


def test_exact_says_where_it_found_no_answer_and_takes_an_extractor() -> None:
    assert scored(make_verifier("exact", VerifierOptions(), "t"), ("7", "it is 7")) == [Score(0.0, False, "no answer")]
    assert scored(make_verifier("exact", VerifierOptions(extract="hash"), "t"), ("7", "it is #7"))[0].correct


def test_normalising_keeps_what_matters() -> None:
    assert [normalised(text) for text in ("$5", "-1,000.5", "A, B", "3.", "")] == ["5", "-1000.5", "a, b", "3", ""]
    assert references([1, [2.5, "x"]]) == ["1", "2.5", "x"]


def test_unknown_names_name_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'exact'"):
        make_verifier("exakt", VerifierOptions(), "t")
    with pytest.raises(UnknownName, match="did you mean 'boxed'"):
        make_verifier("math", VerifierOptions(extract="boxd"), "t")


@pytest.fixture(scope="module")
def math() -> Iterator[Verifier]:
    verifier = make_verifier("math", VerifierOptions(seconds=20, workers=1), "t")
    yield verifier
    verifier.close()


def test_math_knows_equal_expressions_and_notes_the_rest(math: Verifier) -> None:
    right = [
        ("4", "the answer is 4"),
        (r"\frac{1}{2}", r"\boxed{0.5}"),
        ("x^2+1", "$1+x^2$"),
        (r"\sqrt{2}/2", r"$\frac{1}{\sqrt{2}}$"),
        (r"so $\boxed{3}$", "3"),
        ([3, 4], "$4$"),
        ("A", r"\boxed{A}"),
        ("24 + 48 = 72 #### 72", "#### 72"),
        ("4.5e33", r"\boxed{4.5 \times 10^{33}}"),
        ("-1.2E-3", r"so $\boxed{ -0.0012 }$"),
        ("120", r"\boxed{1.2e2}"),
    ]
    assert scored(math, *right) == [Score(1.0, True)] * len(right)
    wrong = [("4", "5"), ("4", ""), ("4", "no number"), ("", "4")]
    notes = ["", "no answer", "no answer", "unreadable reference"]
    assert scored(math, *wrong) == [Score(0.0, False, note) for note in notes]


def test_math_gives_up_on_an_answer_that_takes_too_long() -> None:
    verifier = make_verifier("math", VerifierOptions(seconds=0.5, workers=1), "t")
    assert scored(verifier, ("4", r"$2^{2^{2^{2^{100}}}}$")) == [Score(0.0, False, "timeout")]
    verifier.close()


def test_math_puts_an_extracted_answer_in_a_box() -> None:
    verifier = make_verifier("math", VerifierOptions(extract="tag", seconds=5, workers=1), "t")
    scores = scored(verifier, ("x+1", "7 <answer>1+x</answer> 7"), ("7", "it is 7"))
    verifier.close()
    assert scores == [Score(1.0, True), Score(0.0, False, "no answer")]


def test_every_verifier_says_what_it_read(math: Verifier) -> None:
    """What a majority vote counts: the same text for the same answer, None where there was none."""
    texts = [r"\boxed{0.5}", r"so $\frac{1}{2}$", r"\boxed{3}", "no number", ""]
    read = [score.answer for score in scored(math, *[(r"\frac{1}{2}", text) for text in texts])]
    assert read == ["1/2", "1/2", "3", None, None]
    exact = make_verifier("exact", VerifierOptions(), "t")
    assert [s.answer for s in scored(exact, ("7", r"\boxed{1,000.}"), ("7", "x"))] == ["1000", None]
    assert Score(1.0, True, answer="a") == Score(1.0, True, answer="b")


def test_a_very_long_answer_is_judged_and_cut(math: Verifier) -> None:
    """Python by itself refuses to write whole numbers of more than 4300 digits."""
    [score] = scored(math, ("4", r"\boxed{" + "9" * 4400 + "}"))
    assert (score.correct, score.note) == (False, "")
    assert score.answer == "9" * 500


def test_limits_reach_the_processes(math: Verifier, tmp_path: Path) -> None:
    assert scored(math, ("4", "$4$"))[0].correct
    pool = cast(Any, math)._pool
    assert pool.limit == 20
    (worker,) = pool._workers
    most, hard = resource.prlimit(worker.process.pid, resource.RLIMIT_AS)
    assert most == (4 * 2**30 if hard == resource.RLIM_INFINITY else min(4 * 2**30, hard))
    (tmp_path / "mine.py").write_text("def f(completions): return [1.0] * len(completions)")
    mine: Any = make_verifier(f"{tmp_path / 'mine.py'}:f", VerifierOptions(seconds=20, reward_seconds=7), "t")
    assert mine._caller._pool.limit == 7
    mine.close()

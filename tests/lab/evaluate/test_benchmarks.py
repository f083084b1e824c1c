"""The registry: every entry works on a local file with its columns, and every mistake names its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.lab.evaluate.benchmarks import BENCHMARKS, benchmark, load
from tokenpo.train.tasks.verify import Verifier, VerifierOptions, make_verifier
from written_runs import write_lines

# name -> (a row as the data set has it, the reference, a right completion, words of the prompt)
ROWS: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "math500": ({"problem": "1+1?", "answer": "2", "solution": "s"}, "2", r"\boxed{2}", "1+1?\n\nPlease"),
    "aime24": ({"problem": "n?", "answer": "073"}, "073", r"\boxed{73}", "boxed{}"),
    "aime25": ({"problem": "n?", "answer": "70"}, "70", r"\boxed{70}", "n?"),
    "amc23": ({"question": "n?", "answer": 27.0}, 27.0, r"\boxed{27}", "n?"),
    "minerva": ({"question": "v?", "answer": "3e8"}, "3e8", r"\boxed{3\times 10^8}", "v?"),
    "olympiadbench": ({"question": "x?", "final_answer": ["1,2"]}, "1,2", r"\boxed{1,2}", "x?"),
    "omni_math": ({"problem": "x?", "answer": r"\frac{1}{2}"}, r"\frac{1}{2}", r"\boxed{0.5}", "x?"),
    "gsm8k": ({"question": "Weng?", "answer": "12/60 = <<12/60=0.2>>0.2 an hour.\n#### 1,010"}, "1,010",
        r"\boxed{1010}", "Weng?"),
    "countdown": ({"target": 9, "nums": [1, 2, 3]}, 9, "<answer>(1+2)*3</answer>", "numbers [1, 2, 3], make"),
}  # fmt: skip


def test_every_entry_is_tested():
    assert list(ROWS) == list(BENCHMARKS)
    assert all(entry.hub and entry.split for entry in BENCHMARKS.values())


@pytest.fixture(scope="module")
def math() -> Iterator[Verifier]:
    """One for all entries: its process takes seconds to start."""
    verifier = make_verifier("math", VerifierOptions(verifier_seconds=20, verifier_workers=1), "t")
    yield verifier
    verifier.close()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_an_entry_reads_its_columns_from_a_local_file(name, math, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tokenpo.lab.evaluate.benchmarks.make_verifier",
        lambda kind, options, task: math if kind == "math" else make_verifier(kind, options, task),
    )
    row, reference, right, prompt = ROWS[name]
    file = write_lines(tmp_path / "data.jsonl", [row, row])
    task = load(benchmark(name, file=file), file)
    problems = task.problems("test", 0, 2)
    assert (task.test_size, problems[0].answer, problems[0].columns) == (2, reference, row)
    assert prompt in str(problems[0].prompt)
    assert "{question}" not in str(problems[0].prompt)
    scores = task.score(problems, [right, "I do not know"], [[], []])
    assert [score.correct for score in scores] == [True, False]


def test_names_are_found_however_they_are_written_and_the_nearest_is_named():
    for typed, name in (("MATH-500", "math500"), ("Omni MATH", "omni_math"), ("gsm8k", "gsm8k")):
        assert benchmark(typed) == BENCHMARKS[name]
    with pytest.raises(UnknownName, match=r"'math50': did you mean 'math500'\?, or give a file"):
        benchmark("math50")
    with pytest.raises(UnknownName, match="did you mean 'boxed'"):
        benchmark("math500", reference="boxd")
    with pytest.raises(UnknownName, match="did you mean 'exact'"):
        load(benchmark("math500", verifier="exakt"), Path("x.jsonl"))


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("math500", {"problems": "x", "answer": "1"}, r"line 1: no column 'problem' .*mean 'problems'.*--question"),
        ("math500", {"problem": "x", "answr": "1"}, r"line 1: no column 'answer' .*did you mean 'answr'.*--answer"),
        ("gsm8k", {"question": "x", "answer": "no mark"}, r"line 1: 'hash' finds no reference .*--reference"),
        ("countdown", {"target": 1, "numbers": [1]}, r"line 1: no column 'nums' .*the template"),
    ],
)
def test_a_row_that_does_not_fit_is_named(name, row, message, tmp_path):
    file = write_lines(tmp_path / "data.jsonl", [row])
    with pytest.raises(TokenPOError, match=message):
        load(benchmark(name, file=file), file)


@pytest.mark.parametrize("column", ["answer", "solution"])
def test_a_prompt_that_shows_the_reference_is_refused(tmp_path, column):
    """The braces of LaTeX are taken for a column's; with blanks they are not."""
    file = write_lines(tmp_path / "mine.jsonl", [{"problem": "1+1?", column: "2"}])
    leaking = {"prompt": rf"{{question}} Write \boxed{{{column}}}", "verifier": "exact"}
    with pytest.raises(TokenPOError, match=rf"names {{{column}}}, the column with the ref.* write {{ {column} }} with"):
        load(benchmark(str(file), **leaking), file)
    kept = {"prompt": rf"{{question}} Write \boxed{{ {column} }}", "verifier": "exact"}
    [problem] = load(benchmark(str(file), **kept), file).problems("test", 0, 1)
    assert problem.prompt == rf"1+1? Write \boxed{{ {column} }}"

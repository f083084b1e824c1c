"""The table of tasks, and those of reasoning-gym: right answers pass, what fools the library's scorers doesn't."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tokenpo
from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.train.tasks import TASKS, Task, make_task
from tokenpo.train.tasks.reasoning_gym import Countdown, KnightsKnaves
from tokenpo.train.tasks.types import Problem
from tokenpo.train.tasks.verify import value_of


def test_importing_the_package_and_its_pool_imports_no_heavy_library() -> None:
    code = """
import sys, types
package = types.ModuleType("tokenpo"); package.__path__ = [sys.argv[1]]; sys.modules["tokenpo"] = package
import tokenpo.train.tasks, tokenpo.train.tasks.files
print(sorted({"reasoning_gym", "pyarrow", "math_verify", "sympy", "torch", "numpy"} & set(sys.modules)))
"""
    package = str(Path(tokenpo.__file__).parent)
    out = subprocess.run([sys.executable, "-c", code, package], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"files"}))
def test_every_generated_task_keeps_the_protocol(name: str) -> None:
    easy = {"min_numbers": 2, "max_numbers": 3, "min_target": 1} if name == "countdown" else {}  # else slow to generate
    task = make_task(name, easy, seed=5)
    assert isinstance(task, Task) and task.name == name
    for split in ("train", "test"):
        problems = task.problems(split, 3, 4)
        assert problems[2:] == task.problems(split, 5, 2) == make_task(name, easy, seed=5).problems(split, 5, 2)
        assert problems != make_task(name, easy, seed=6).problems(split, 3, 4)
        wrong = task.score(problems, ["nonsense", "", "\ud800 <answer></answer>", "#"], [[]] * 4)
        assert [(score.reward, score.correct, score.note) for score in wrong] == [(0.0, False, "no answer")] * 4
    train, test = ({str(p.prompt) for p in task.problems(split, 3, 9)} for split in ("train", "test"))
    assert not train & test
    task.close()


@pytest.mark.parametrize(
    ("name", "given", "kind", "words"),
    [
        ("chainsum", {}, UnknownName, "did you mean 'chain_sum'"),
        ("chain_sum", {"max_term": 3}, UnknownName, "did you mean 'max_terms'"),
        ("chain_sum", {"seed": 3}, UnknownName, "no option 'seed'"),
        ("chain_sum", {"max_terms": True}, TokenPOError, "max_terms = True must be of type int"),
        ("chain_sum", {"min_terms": 9}, TokenPOError, "max_terms must be >= min_terms"),
        ("chain_sum", {"extract": "tga"}, UnknownName, "did you mean 'tag'"),
        ("files", {}, TokenPOError, "needs the option 'path'"),
    ],
)
def test_errors_name_the_thing_and_the_nearest(name: str, given: dict, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        make_task(name, given, seed=0)


def scored(task: Any, problem: Problem, answer: str) -> tuple[float, str]:
    (score,) = task.score([problem], [f"thinking... <answer>{answer}</answer>"], [[]])
    assert score.correct == (score.reward == 1.0)
    assert (score.answer is None) == (score.note == "no answer")
    return score.reward, score.note


@pytest.mark.parametrize("name", ["chain_sum", "countdown", "knights_knaves"])
def test_the_reference_passes_and_partial_credit_is_off_unless_asked(name: str) -> None:
    task, graded = make_task(name, {}, seed=1), make_task(name, {"binary": False}, seed=1)
    (problem,) = task.problems("train", 7, 1)
    assert "between <answer> and </answer>" in problem.prompt
    assert scored(task, problem, problem.answer) == (1.0, "")
    near = {"chain_sum": f"{problem.answer}.5", "countdown": "1 + 1"}.get(name, "")
    if name == "knights_knaves":  # one of them the other way round
        knight, knave = (str(problem.columns["metadata"]["knight_knave_terms"][key]) for key in ("knight", "knave"))
        first, second = problem.answer.split(", and ")
        near = f"{first.replace(*((knight, knave) if knight in first else (knave, knight)))}, and {second}"
    assert scored(task, problem, near)[0] == 0.0
    assert 0.0 < scored(graded, problem, near)[0] < 1.0


def test_countdown_never_evaluates_text_as_code_and_is_exact() -> None:
    task = Countdown(seed=0)
    entry = {"metadata": {"numbers": [100, 1000, 3], "target": 33}, "answer": "..."}
    problem = Problem("", "...", entry)
    assert scored(task, problem, "1000/3 - 100*3") == (0.0, "malformed")  # 33.3, the numbers don't match anyway
    assert scored(task, problem, "__import__('os')._exit(3)") == (0.0, "malformed")
    assert scored(task, problem, "9**9**9**9**9") == (0.0, "malformed")
    close = Problem("", "...", {"metadata": {"numbers": [999, 3, 1000], "target": 333000}})
    assert scored(task, close, "999/3*1000") == (1.0, "")
    assert scored(task, Problem("", "", {"metadata": {}}), "1+1") == (0.0, "error"), "the scorer raises"
    near = Problem("", "...", {"metadata": {"numbers": [332999, 1, 2000], "target": 332999}})
    assert scored(task, near, "332999 + 1/2000") == (0.0, "malformed")  # the library's tolerance would take it


def test_only_arithmetic_has_a_value() -> None:
    texts = ("", "x", "2**3", "7//2", "1/0", "1.5", "0x10", "(1", "1,2", "[1]", "+1", "1" * 201, "٣")
    assert {text: value_of(text) for text in texts} == dict.fromkeys(texts)


def test_knights_knaves_refuses_words_that_the_library_overlooks() -> None:
    task = KnightsKnaves(seed=0)
    (problem,) = task.problems("train", 0, 1)
    first, second = problem.answer.rstrip(".").split(", and ")
    assert scored(task, problem, f"{second} and {first}") == (1.0, "")
    assert scored(task, problem, problem.answer.upper()) == (1.0, "")
    assert scored(task, problem, f"not {problem.answer}") == (0.0, "malformed")
    terms = problem.columns["metadata"]["knight_knave_terms"]
    assert scored(task, problem, f"{first} {terms['knave']}, {second}") == (0.0, "malformed")
    assert scored(task, problem, f"{first}, {first}, {second}") == (0.0, "malformed")
    assert scored(task, problem, f"{first}, and {second.split()[0]}") == (0.0, "")


def test_splits_are_disjoint_by_content_whatever_the_seeds() -> None:
    small = {"min_terms": 2, "max_terms": 2, "max_digits": 1}  # 200 problems: seeds alone would not keep them apart
    tasks = [make_task("chain_sum", small, seed) for seed in (1, 2)]
    train = {p.prompt for task in tasks for p in task.problems("train", 0, 400)}
    test = {p.prompt for task in tasks for p in task.problems("test", 0, 40)}
    (chat,) = make_task("chain_sum", {"chat": True, "extract": "boxed"}, seed=0).problems("test", 0, 1)
    assert [m["role"] for m in chat.prompt] == ["user"] and r"\boxed{}" in chat.prompt[0]["content"]
    assert not train & test and len(train) + len(test) > 180 and 0.15 < len(test) / 200 < 0.35
    with pytest.raises(TokenPOError, match=r"'chain_sum' with .* has \d\d held-out .* not the 200 asked for"):
        tasks[0].problems("test", 0, 200)


def test_the_order_of_the_numbers_does_not_move_a_problem_between_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Countdown(seed=0)

    def sides(numbers: list[int]) -> list[bool]:
        return [task._held_out({"metadata": {"numbers": numbers, "target": target}}) for target in range(60)]

    assert sides([1, 2, 3]) == sides([3, 1, 2]) != sides([1, 2, 4])
    monkeypatch.setattr(type(task), "_held_out", lambda self, entry: False)
    with pytest.raises(TokenPOError, match="no test problem"):
        task.problems("test", 0, 1)


def test_entries_without_a_sound_answer_are_skipped() -> None:
    task: Any = make_task("chain_sum", {}, seed=0)
    real = task._generator

    class Holey:
        def __getitem__(self, index: int) -> dict[str, Any]:
            return real[index] | {"answer": {0: None, 1: "no number"}.get(index % 4, real[index]["answer"])}

        def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
            return float(answer != "no number")

    object.__setattr__(task, "_generator", Holey())
    indices = {p.columns["metadata"]["source_index"] % 4 for p in task.problems("train", 0, 40)}
    assert indices == {2, 3}

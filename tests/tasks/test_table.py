"""The table of tasks: names, options, lazy imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tokenpo
from tokenpo.base.errors import TokenPOError, UnknownName
from tokenpo.tasks import TASKS, Task, make_task, options


def test_importing_the_package_and_its_pool_imports_no_heavy_library() -> None:
    code = """
import sys, types
package = types.ModuleType("tokenpo"); package.__path__ = [sys.argv[1]]; sys.modules["tokenpo"] = package
import tokenpo.tasks, tokenpo.tasks.files
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
        ("chain_sum", {"max_terms": "3"}, TokenPOError, "max_terms = '3' must be of type int"),
        ("chain_sum", {"max_terms": True}, TokenPOError, "must be of type int"),
        ("chain_sum", {"min_terms": 9}, TokenPOError, "max_terms must be >= min_terms"),
        ("chain_sum", {"extract": "tga"}, UnknownName, "did you mean 'tag'"),
        ("files", {}, TokenPOError, "needs the option 'path'"),
    ],
)
def test_errors_name_the_thing_and_the_nearest(name: str, given: dict, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        make_task(name, given, seed=0)


def test_options_lists_defaults_and_marks_the_required() -> None:
    assert options("files")["path"] is ... and options("files")["verifier"] == "exact"
    library = {"n_people": 2, "depth_constraint": 2, "width_constraint": 2}
    assert options("knights_knaves") == library | {"binary": True, "extract": "tag", "chat": False}

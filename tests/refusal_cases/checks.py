"""The laws of refusals."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .case import SOURCE, Case, Said
from .page import PAGE, section

# How a sentence may name the engine: its name, or that of what a user of it holds in hand.
NAMED = {
    "embedded": r"the embedded engine",
    "trl": r"\bTRL\b|\bTokenPOConfig\b|\bTokenPOTrainer\b",
    "verl": r"\bverl\b",
    "vllm": r"\bvLLM\b",
}
# Refusals that are no matter of what an engine can honour, and which test has each.
ELSEWHERE = {
    ("adapters/trl/contract.py", "check_import"): "TRL is missing: tests/adapters/trl/test_parts.py",
    ("adapters/trl/contract.py", "moved"): "a private surface moved: tests/adapters/trl/test_parts.py",
    ("adapters/vllm/contract.py", "require"): "a young surface moved: tests/adapters/vllm/test_processor.py",
    ("adapters/vllm/contract.py", "require_fields"): "a young surface moved: tests/adapters/vllm/test_processor.py",
    ("adapters/vllm/processor.py", "_bases"): "a young surface moved: tests/adapters/vllm/test_processor.py",
    ("commands/launch.py", "_verl_module"): "verl is missing: tests/commands/test_launch.py",
    ("commands/launch.py", "_require"): "an engine is missing: tests/commands/test_launch.py",
    ("lm/packed.py", "_forward"): "answered with padded batches: tests/lm/test_score.py",
    ("tasks/rewards.py", "_signature"): "a function of the user's: tests/tasks/test_rewards.py",
    ("train/trackers.py", "require_trackers"): "a package is missing: tests/train/test_trackers.py",
    ("train/trackers.py", "open"): "a tracker fails: tests/train/test_trackers.py",
}


def check_case(engine: str, case: Case, found: Said) -> None:
    """The right error, and one sentence that names the engine, the thing and the remedy."""
    said = found.sentence
    assert found.error is case.error, f"{found.error.__name__}: {said}"
    assert re.search(NAMED[engine], said), f"does not name {engine}: {said}"
    for name in case.thing:
        assert name in said, f"does not name {name}: {said}"
    assert case.remedy in said, f"does not say {case.remedy!r}: {said}"
    assert "\n" not in said and not re.search(r"[.!?]$|[.!?] +[A-Z]", said), f"more than one sentence: {said}"


@dataclass(frozen=True)
class Site:
    """A place that makes an `Unsupported`; lines first to last of the statement."""

    file: str
    function: str
    first: int
    last: int


def sites(files: Iterable[Path]) -> Iterator[Site]:
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from _inside(tree, path.relative_to(SOURCE).as_posix(), "")


def _inside(node: ast.AST, file: str, function: str) -> Iterator[Site]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _inside(child, file, child.name)
            continue
        if isinstance(child, ast.Raise | ast.Return | ast.Assign | ast.Expr) and _makes(child):
            yield Site(file, function, child.lineno, child.end_lineno or child.lineno)
        else:
            yield from _inside(child, file, function)


def _makes(statement: ast.stmt) -> bool:
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any("Unsupported" in (getattr(f, "id", ""), getattr(f, "attr", "")) for f in calls)


def check_sites(files: Sequence[Path], seen: Iterable[Said]) -> None:
    """Every place in these files that refuses is where a case ended, or is listed with the test that has it."""
    found, places = list(sites(files)), {one.place for one in seen}
    assert found, "no refusal in these files: was the folder moved?"
    listed = {(site.file, site.function) for site in found} & set(ELSEWHERE)
    names = {path.relative_to(SOURCE).as_posix() for path in files}
    assert listed == {key for key in ELSEWHERE if key[0] in names}, "ELSEWHERE lists a place that refuses nothing"
    for key in listed:
        test = SOURCE.parents[1] / ELSEWHERE[key].rpartition(": ")[2]
        assert test.is_file(), f"{test} does not exist"
    untold = [
        f"{site.file}:{site.first} in {site.function}"
        for site in found
        if (site.file, site.function) not in ELSEWHERE
        and not any(file == site.file and site.first <= line <= site.last for file, line in places)
    ]
    assert not untold, f"a refusal without a case in tests/refusal_cases: {untold}"


def check_page(engine: str, cases: Sequence[Case], seen: Sequence[Said]) -> None:
    """docs/refusals.md has this engine's section as it is said now."""
    page = PAGE.read_text(encoding="utf-8")
    stale = [line for line in section(engine, cases, seen).splitlines() if line not in page.splitlines()]
    assert not stale, f"run tools/refusals.py and commit docs/refusals.md: {stale}"
    heading = section(engine, (), ()).splitlines()[0]
    part = page.split(f"\n{heading}\n", 1)[-1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    assert len(rows) == len(cases) + 2, "docs/refusals.md has rows of no case: run tools/refusals.py"

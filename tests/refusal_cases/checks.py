"""The laws of refusals."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .case import SOURCE, Case, Said
from .page import PAGE, section

# How a sentence may name the engine: its name, or that of what a user of it holds in hand.
NAMED = {
    "embedded": r"the embedded engine",
    "handed": r"\bSkyRL\b|\bprime-rl\b",
    "tinker": r"\bTinker\b",
    "trl": r"\bTRL\b|\bTokenPOConfig\b|\bTokenPOTrainer\b",
    "verl": r"\bverl\b",
    "vllm": r"\bvLLM\b",
}
# Refusals that are no matter of what an engine can honour, and which test has each.
ELSEWHERE = {
    ("engines/trl/contract.py", "check_import"): "TRL is missing: tests/engines/trl/test_parts.py",
    ("engines/trl/contract.py", "moved"): "a private surface moved: tests/engines/trl/test_parts.py",
    ("engines/vllm/contract.py", "require_runner"): "a young surface moved: tests/engines/vllm/test_processor.py",
    ("engines/vllm/contract.py", "bases"): "a young surface moved: tests/engines/vllm/test_processor.py",
    ("engines/launch.py", "require_installed"): "an engine is missing: tests/cli/test_launch.py",
    ("core/learner.py", "_require_versions"): "versions of a host: tests/core/test_learner.py",
    ("tasks/__init__.py", "refuse_tool"): "a task with a tool: tests/tasks/test_dial_calculator.py",
    ("core/learner.py", "_given"): "credit of a host: tests/core/test_learner.py",
    ("models/packed.py", "_forward"): "answered with padded batches: tests/models/test_score.py",
    ("tasks/rewards.py", "_signature"): "a function of the user's: tests/tasks/test_rewards.py",
    ("runs/trackers.py", "require_trackers"): "a package is missing: tests/engines/embedded/test_trackers.py",
    ("runs/trackers.py", "open"): "a tracker fails: tests/engines/embedded/test_trackers.py",
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
    """A place that makes an `Unsupported`; lines first to last of the statement.

    Args:
        rows: of the table written out in the source around it, the innermost: `for row in TABLE`, `if x in ("a", "b")`.
    """

    file: str
    function: str
    first: int
    last: int
    rows: int = 1


def sites(files: Iterable[Path]) -> Iterator[Site]:
    for path in files:
        yield from source_sites(path.read_text(encoding="utf-8"), path.relative_to(SOURCE).as_posix())


def source_sites(source: str, file: str) -> Iterator[Site]:
    tree = ast.parse(source)
    yield from _inside(tree, file, "", 1, _tables(tree))


def _inside(node: ast.AST, file: str, function: str, rows: int, tables: Mapping[str, int]) -> Iterator[Site]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _inside(child, file, child.name, 1, {**tables, **_tables(child)})
        elif isinstance(child, ast.Raise | ast.Return | ast.Assign | ast.Expr) and _makes(child):
            yield Site(file, function, child.lineno, child.end_lineno or child.lineno, rows)
        else:
            yield from _inside(child, file, function, _rows(child, tables) or rows, tables)


def _tables(node: ast.AST) -> dict[str, int]:
    """Name -> rows of what is written out and given a name in here."""
    found: dict[str, int] = {}
    for one in ast.walk(node):
        names = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
        if (rows := _length(value, {})) is not None:
            found |= {name.id: rows for name in names if isinstance(name, ast.Name)}
    return found


def _length(value: ast.expr | None, tables: Mapping[str, int]) -> int | None:
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return len(value.elts)
    if isinstance(value, ast.Dict):
        return len(value.keys)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):  # TABLE.items()
        value = value.func.value
    return tables.get(value.id) if isinstance(value, ast.Name) else None


def _rows(node: ast.AST, tables: Mapping[str, int]) -> int | None:
    """How many rows of a table one statement goes through; None where it goes through none."""
    if isinstance(node, ast.For):
        return _length(node.iter, tables)
    if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.In):
        return _length(node.test.comparators[0], {})
    return None


def _makes(statement: ast.stmt) -> bool:
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any("Unsupported" in (getattr(f, "id", ""), getattr(f, "attr", "")) for f in calls)


def check_sites(files: Sequence[Path], seen: Iterable[Said]) -> None:
    """Every place in these files that refuses is where a case ended, once for each row of the table around it, or
    is listed with the test that has it."""
    found, seen = list(sites(files)), list(seen)
    assert found, "no refusal in these files: was the folder moved?"
    listed = {(site.file, site.function) for site in found} & set(ELSEWHERE)
    names = {path.relative_to(SOURCE).as_posix() for path in files}
    assert listed == {key for key in ELSEWHERE if key[0] in names}, "ELSEWHERE lists a place that refuses nothing"
    for key in listed:
        test = SOURCE.parents[1] / ELSEWHERE[key].rpartition(": ")[2]
        assert test.is_file(), f"{test} does not exist"
    untold = [
        f"{site.file}:{site.first} in {site.function}, {count} of {site.rows}"
        for site in found
        if (site.file, site.function) not in ELSEWHERE and (count := told(site, seen)) < site.rows
    ]
    assert not untold, f"a refusal without a case in tests/refusal_cases: {untold}"


def told(site: Site, seen: Iterable[Said]) -> int:
    """How many sentences were said there."""
    here = (one for one in seen if one.place[0] == site.file and site.first <= one.place[1] <= site.last)
    return len({one.sentence for one in here})


def check_page(engine: str, cases: Sequence[Case], seen: Sequence[Said]) -> None:
    """docs/refusals.md has this engine's section as it is said now."""
    page = PAGE.read_text(encoding="utf-8")
    stale = [line for line in section(engine, cases, seen).splitlines() if line not in page.splitlines()]
    assert not stale, f"run tools/site/refusals.py and commit docs/refusals.md: {stale}"
    heading = section(engine, (), ()).splitlines()[0]
    part = page.split(f"\n{heading}\n", 1)[-1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    assert len(rows) == len(cases) + 2, "docs/refusals.md has rows of no case: run tools/site/refusals.py"

"""What holds for every refusal: it is one sentence, it has a case, and docs/refusals.md has its row."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .case import SOURCE, Case, Refusal
from .page import PAGE, section

# How a sentence names the engine: by its name, or by a class of its user's.
NAMED = {
    "embedded": r"the embedded engine",
    "handed": r"\bSkyRL\b|\bprime-rl\b",
    "tinker": r"\bTinker\b",
    "trl": r"\bTRL\b|\bTokenPOConfig\b|\bTokenPOTrainer\b",
    "verl": r"\bverl\b",
    "vllm": r"\bvLLM\b",
}
# Refusals that are not about what an engine can honour, and the test that has each.
ELSEWHERE = {
    ("engines/trl/contract.py", "check_import"): "TRL is missing: tests/engines/trl/test_parts.py",
    ("engines/trl/contract.py", "moved"): "a private surface moved: tests/engines/trl/test_parts.py",
    ("engines/vllm/processor.py", "_moved"): "a young surface moved: tests/engines/vllm/test_processor.py",
    ("core/head/fused.py", "run_lean"): "an argument: tests/core/head/test_teacher.py",
    ("lab/exact/sampling.py", "view"): "no engine: tests/lab/exact/test_sampling.py",
    ("lab/exact/contestant.py", "begin"): "no engine: tests/lab/exact/test_sampling.py",
    ("core/negotiation.py", "_no_drafts"): "every engine but the embedded one: tests/refusal_cases/trl.py",
    ("core/learner.py", "_require_versions"): "versions of a host: tests/core/test_learner.py",
    ("tasks/__init__.py", "refuse_tool"): "a task with a tool: tests/tasks/test_dial_sum.py",
    ("core/learner.py", "_checked"): "credit of a host: tests/core/test_learner.py",
    ("models/packed.py", "_forward"): "answered with padded batches: tests/models/test_score.py",
    ("models/decoder.py", "__init__"): "a kind of model: tests/models/test_sampler.py",
    ("tasks/rewards.py", "__init__"): "a function of the user's: tests/tasks/test_rewards.py",
    ("runs/trackers.py", "require_trackers"): "a package is missing: tests/engines/embedded/test_trackers.py",
    ("runs/trackers.py", "__init__"): "a tracker fails: tests/engines/embedded/test_trackers.py",
}


def check_case(engine: str, case: Case, found: Refusal) -> None:
    """The right error, and one sentence that names the engine, the thing and the remedy."""
    sentence = found.sentence
    assert found.error is case.error, f"{found.error.__name__}: {sentence}"
    assert re.search(NAMED[engine], sentence), f"does not name {engine}: {sentence}"
    for words in (*case.thing, case.remedy):
        assert words in sentence, f"does not say {words!r}: {sentence}"
    assert "\n" not in sentence and not re.search(r"[.!?]$|[.!?] +[A-Z]", sentence), f"several sentences: {sentence}"


@dataclass(frozen=True)
class Site:
    """A statement that makes an `Unsupported`, lines first to last.

    Args:
        rows: of the innermost table written out around it: `for row in TABLE`, `if x in ("a", "b")`.
    """

    file: str
    function: str
    first: int
    last: int
    rows: int = 1


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
    """Name -> rows of the tables that are assigned in this node."""
    found: dict[str, int] = {}
    for one in ast.walk(node):
        if isinstance(one, ast.Assign | ast.AnnAssign) and (rows := _length(one.value, {})) is not None:
            names = one.targets if isinstance(one, ast.Assign) else [one.target]
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
    """The rows of the table that a statement goes through; None if it goes through none."""
    if isinstance(node, ast.For):
        return _length(node.iter, tables)
    if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.In):
        return _length(node.test.comparators[0], {})
    return None


def _makes(statement: ast.stmt) -> bool:
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any("Unsupported" in (getattr(f, "id", ""), getattr(f, "attr", "")) for f in calls)


def check_sites(files: Sequence[Path], refusals: Sequence[Refusal]) -> None:
    """Every place that refuses is where a case ended, once for each row of its table, or is in ELSEWHERE."""
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in files}
    found = [site for name, text in texts.items() for site in source_sites(text, name)]
    assert found, "no refusal in these files: was the folder moved?"
    listed = {(site.file, site.function) for site in found} & set(ELSEWHERE)
    idle = [key for key in ELSEWHERE if key[0] in texts and key not in listed]
    assert not idle, f"ELSEWHERE lists places that refuse nothing: {idle}"
    for key in listed:
        test = SOURCE.parents[1] / ELSEWHERE[key].rpartition(": ")[2]
        assert test.is_file(), f"{test} does not exist"
    bare = [
        f"{site.file}:{site.first} in {site.function}, {count} of {site.rows}"
        for site in found
        if (site.file, site.function) not in ELSEWHERE and (count := cases_at(site, refusals)) < site.rows
    ]
    assert not bare, f"a refusal without a case in tests/refusal_cases: {bare}"


def cases_at(site: Site, refusals: Iterable[Refusal]) -> int:
    """The number of different sentences from there."""
    here = (one for one in refusals if one.place[0] == site.file and site.first <= one.place[1] <= site.last)
    return len({one.sentence for one in here})


def check_page(engine: str, cases: Sequence[Case], refusals: Sequence[Refusal]) -> None:
    """docs/refusals.md has exactly this section."""
    expected = section(engine, cases, refusals)
    assert expected in PAGE.read_text(encoding="utf-8"), "run tools/site/refusals.py and commit docs/refusals.md"

"""All of src writes through `tokenpo.base.files`, which follows no link: every call that writes is looked at."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenpo
from tokenpo.base.errors import TokenPOError
from tokenpo.base.files import is_fresh, locked, opened_in_place, remove_directory, sweep, whole, write_whole
from tokenpo.base.jsonl import Lines, cut

SOURCE = Path(tokenpo.__file__).parent
DOOR = "base/files.py"
WRITES = """
write_text write_bytes touch truncate ftruncate mkdir makedirs mkdtemp mkstemp rmtree rename unlink rmdir
symlink_to hardlink_to symlink copyfile copytree copy2 chmod utime
save_file save_pretrained to_json_file write_table savez SummaryWriter NamedTemporaryFile
"""
USERS = "the directory that the user names, or the next free name"
BELOW = "a directory below a run"
LINKLESS = "follows no link"
ALLOWED = {
    ("base/jsonl.py", "ftruncate"): "the log's own handle, which the door opened",
    ("base/jsonl.py", "truncate"): "a handle that the door opened",
    ("base/pool.py", "os.open"): "os.devnull",
    ("cli/streams.py", "open"): "a descriptor that is open",
    ("cli/streams.py", "os.open"): "os.devnull",
    ("hosts/verl/trainer.py", "mkdir"): "below verl's own checkpoint",
    ("lab/compare/runs.py", "mkdir"): USERS,
    ("lab/compare/runs.py", "rmtree"): LINKLESS,
    ("lab/evaluate/run.py", "mkdir"): USERS,
    ("lab/evaluate/run.py", "rmdir"): LINKLESS,
    ("lab/evaluate/run.py", "unlink"): LINKLESS,
    ("train/models/model.py", "save_pretrained"): "into the directory that whole_directory gave `save`",
    ("train/models/model.py", "to_json_file"): "into the directory that whole_directory gave `save`",
    ("train/run/checkpoint.py", "rmtree"): LINKLESS,
    ("train/run/directory.py", "mkdir"): USERS,
    ("records/log.py", "mkdir"): USERS,
    ("records/log.py", "rename"): LINKLESS,
    ("train/run/loop.py", "rmtree"): LINKLESS,
    ("records/rollouts.py", "mkdir"): BELOW,
    ("records/rollouts.py", "unlink"): LINKLESS,
    ("train/run/trackers.py", "SummaryWriter"): BELOW,
}


def _writing(call: ast.Call) -> str | None:
    """What a call writes with; None for one that writes nothing."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "open":
        if ast.unparse(function) == "os.open":
            return "os.open" if re.search("O_(WRONLY|RDWR|CREAT|APPEND|TRUNC)", ast.unparse(call)) else None
        modes = [x.value for x in ast.walk(call) if isinstance(x, ast.Constant) and isinstance(x.value, str)]
        return "open" if any(re.fullmatch("[rbtU]*[wax+][rbtwax+]*", mode) for mode in modes) else None
    return name if name in WRITES.split() else None


def _given(node: ast.With) -> set[str]:
    """Names bound to what `whole` or `whole_directory` gives."""
    calls = [(item.context_expr, item.optional_vars) for item in node.items]
    return {
        target.id
        for call, target in calls
        if isinstance(call, ast.Call) and isinstance(target, ast.Name) and "whole" in ast.unparse(call.func)
    }


def _calls(node: ast.AST, given: frozenset[str] = frozenset()) -> Iterator[tuple[ast.Call, frozenset[str]]]:
    """Every call with the names that the door gave around it."""
    if isinstance(node, ast.With):
        given = given | _given(node)
    if isinstance(node, ast.Call):
        yield node, given
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, given)


def outside(text: str, file: str) -> Iterator[tuple[str, str]]:
    """The file and kind of every writing call that is not on a path that the door gave."""
    for call, given in _calls(ast.parse(text)):
        kind = _writing(call)
        named = {x.id for x in ast.walk(call) if isinstance(x, ast.Name)}
        if kind and not named & given:
            yield file, kind


def test_everything_is_written_through_the_door() -> None:
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        if file != DOOR:
            found |= set(outside(path.read_text(encoding="utf-8"), file))
    assert found - ALLOWED.keys() == set(), f"write with {DOOR}, or say in ALLOWED why not"
    assert ALLOWED.keys() - found == set(), "no such call any more: strike it out"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("path.write_text('')", "write_text"),
        ("path.open('w')", "open"),
        ("open(path, mode='ab')", "open"),
        ("os.open(path, os.O_RDWR)", "os.open"),
        ("save_file(x, path)", "save_file"),
        ("with whole(a) as part:\n    path.write_bytes(b'')", "write_bytes"),
        ("path.open('rb')", None),
        ("with whole(a) as part:\n    save_file(x, part)", None),
    ],
)
def test_the_look_itself(text: str, kind: str | None) -> None:
    assert [found for _, found in outside(text, "x.py")] == ([kind] if kind else [])


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file outside the directory `run` that has to stay as it is."""
    (tmp_path / "run").mkdir()
    file = tmp_path / "victim"
    file.write_bytes(b"precious\n")
    before = file.stat()
    yield file
    assert file.read_bytes() == b"precious\n" and file.stat().st_mtime_ns == before.st_mtime_ns


def test_a_file_is_written_through_no_link(victim: Path) -> None:
    page = victim.parent / "run" / "report.html"
    for name in (".writing-report.html", ".writing-report.html.abcd1234", "report.html"):
        page.with_name(name).symlink_to(victim)
    write_whole(page, "new")
    assert page.read_text() == "new" and not page.is_symlink()
    assert sorted(path.name for path in page.parent.iterdir()) == [".writing-report.html", "report.html"]


@pytest.mark.parametrize("name", ["metrics.jsonl", ".lock"])
@pytest.mark.parametrize("kind", ["symbolic", "hard", "pipe", "gone"])
def test_what_is_written_where_it_stands_is_no_link(victim: Path, name: str, kind: str) -> None:
    path = victim.parent / "run" / name
    gone = victim.with_name("not-there")
    makers = {"symbolic": lambda: path.symlink_to(victim), "hard": lambda: path.hardlink_to(victim)}
    makers |= {"pipe": lambda: os.mkfifo(path), "gone": lambda: path.symlink_to(gone)}
    makers[kind]()

    def lock() -> None:
        with locked(path, "busy"):
            pass

    said = f"{path} is a link or no regular file, and is not written through: remove it, or copy it"
    writers = [lambda: Lines(path), lambda: opened_in_place(path, os.O_RDWR), lock]
    writers += [lambda: cut(path, 1)] if kind in ("symbolic", "hard") else []  # elsewhere there is nothing to cut
    for write in writers:
        with pytest.raises((TokenPOError, OSError)) as caught:
            write()
        assert str(caught.value) == said or kind == "pipe"
    assert not gone.exists()


def test_what_is_removed_is_the_link(victim: Path) -> None:
    run, kept = victim.parent / "run", victim.parent / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    (run / "inner").mkdir()
    for link in (run / "step", run / ".old-model", run / ".writing-model.abcd1234", run / "inner" / "link"):
        link.symlink_to(kept)
    (run / "model").mkdir()
    remove_directory(run / "step")
    remove_directory(run / "inner")
    sweep(run / "model")
    assert (kept / "file").read_text() == "kept"
    assert not (run / "step").is_symlink() and not (run / "inner").exists() and not (run / ".old-model").is_symlink()


def test_what_a_dead_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    (tmp_path / ".writing-config.json.abcd1234").write_text("{")
    assert is_fresh(tmp_path)
    with whole(config) as ours:
        assert [path.name for path in tmp_path.iterdir()] == [ours.name]
        with whole(config) as theirs:
            assert ours.exists() and theirs != ours
        ours.write_text("last")
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"] and config.read_text() == "last"
    (tmp_path / "plain").touch()
    assert config.stat().st_mode == (tmp_path / "plain").stat().st_mode

"""Files that are whole or not there, and JSON lines."""

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.base.files import is_fresh, locked, old_of, opened_in_place, sweep, whole, whole_directory, write_whole
from tokenpo.base.jsonl import Line, Lines, cut, whole_lines


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of what is synced and renamed, in order."""
    seen: list[str] = []
    fsync, rename, replace = os.fsync, Path.rename, Path.replace

    def plain(path: Path) -> str:
        return re.sub(r"(\.writing-.*)\.[0-9a-f]{8}$", r"\1", path.name)

    def synced(handle: int) -> None:
        seen.append(f"sync {plain(Path(f'/proc/self/fd/{handle}').readlink())}")
        fsync(handle)

    def named(self: Path, target: Path, how) -> Path:
        seen.append(f"name {plain(Path(target))}")
        return how(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", lambda self, target: named(self, target, rename))
    monkeypatch.setattr(Path, "replace", lambda self, target: named(self, target, replace))
    yield seen


linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc, which is Linux's")


def _filled(path: Path, text: str) -> None:
    with whole_directory(path) as work:
        (work / "parts").mkdir()
        (work / "parts" / "one").write_text(text)


def _content(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()}


@linux
def test_a_directory_is_on_the_disk_before_it_takes_its_name_and_the_old_one_goes(
    tmp_path: Path, calls: list[str]
) -> None:
    named = ["sync .writing-model", "name model", f"sync {tmp_path.name}"]
    _filled(tmp_path / "model", "old")
    assert sorted(calls[:2]) == ["sync one", "sync parts"] and calls[2:] == named
    calls.clear()
    _filled(tmp_path / "model", "new")
    assert calls[2:] == [named[0], "name .old-model", *named[1:], "name .writing-.old-model"]


def test_what_a_killed_process_left_is_swept_unless_it_is_all_there_is(tmp_path: Path) -> None:
    model = tmp_path / "model"
    _filled(old_of(model), "old")
    (tmp_path / ".writing-model.abcd1234" / "new").mkdir(parents=True)
    sweep(model)
    assert [path.name for path in tmp_path.iterdir()] == [old_of(model).name]
    model.mkdir()
    sweep(model)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_after_an_error_the_old_file_or_directory_is_there_and_nothing_else(tmp_path: Path) -> None:
    _filled(tmp_path / "model", "old")
    with pytest.raises(RuntimeError, match="half way"), whole_directory(tmp_path / "model") as work:
        (work / "one").write_text("ne")
        raise RuntimeError("half way")
    place = write_whole(tmp_path / "report.html", "old")
    with pytest.raises(RuntimeError, match="half way"), whole(place) as part:
        part.write_text("ne")
        assert part.name.startswith(".writing-report.html.") and place.read_text() == "old"
        raise RuntimeError("half way")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "report.html"]
    assert _content(tmp_path) == {"model/parts/one": "old", "report.html": "old"}


def test_a_lock_is_refused_to_the_second_unless_there_are_no_locks(tmp_path: Path, monkeypatch) -> None:
    again = pytest.raises(TokenPOError, match=r"^busy: wait$")
    with locked(tmp_path / ".lock", "busy: wait"), again, locked(tmp_path / ".lock", "busy: wait"):
        pass
    (tmp_path / ".lock").write_text("kept")
    with locked(tmp_path / ".lock", "busy: wait"):
        assert (tmp_path / ".lock").read_text() == "kept"

    def missing(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", missing)
    with locked(tmp_path / ".lock", "busy: wait"):
        pass


def test_lines_are_cut_back_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = Lines(path)
    lines.write({"a": float("nan"), "b": [1.0, float("inf")], "c": "ü"})
    size = lines.sync()
    lines.write({"d": 1})
    lines.close()
    cut(path, size)
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {"a": None, "b": [1.0, None], "c": "ü"}
    ]
    assert (
        cut(tmp_path / "absent", 0) == "" and cut(tmp_path / "absent", 1) == "absent has 0 bytes, 1 at the checkpoint"
    )
    path.write_bytes(path.read_bytes() + b'{"half')
    assert cut(path, size + 7) == f"log.jsonl has {size + 6} bytes, {size + 7} at the checkpoint"
    assert path.stat().st_size == size


def test_whole_lines_are_read_and_the_others_named(tmp_path: Path) -> None:
    def parse(value: object) -> int:
        if not isinstance(value, int):
            raise ValueError("not a number")
        return value

    path = tmp_path / "log.jsonl"
    path.write_bytes(b'1\n\n[]\n{"a\n22\n3')
    notes: list[str] = []
    assert list(whole_lines(path, parse, notes)) == [Line(1, 0, 1), Line(5, 10, 22), Line(6, 13, 3)]
    assert notes == ["log.jsonl: 2 lines were left out (line 3: not a number; line 4: not valid JSON)."]
    path.write_bytes(b'1\n{"a')
    notes.clear()
    assert [line.value for line in whole_lines(path, parse, notes)] == [1]
    assert notes == ["log.jsonl: 1 line was left out (line 2: not valid JSON, cut off while it was being written)."]


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
    assert len([*page.parent.iterdir()]) == 3


@pytest.mark.parametrize("name", ["metrics.jsonl", ".lock"])
def test_what_is_written_where_it_stands_is_no_link(victim: Path, name: str) -> None:
    path = victim.parent / "run" / name
    path.symlink_to(victim)

    def lock() -> None:
        with locked(path, "busy"):
            pass

    for write in (lambda: Lines(path), lambda: opened_in_place(path, os.O_RDWR), lock, lambda: cut(path, 1)):
        with pytest.raises(TokenPOError, match=f"{name} is a link"):
            write()


def test_what_a_dead_process_began_leaves_a_directory_fresh(tmp_path: Path) -> None:
    (tmp_path / ".writing-config.json.abcd1234").write_text("{")
    assert is_fresh(tmp_path)
    config, _ = write_whole(tmp_path / "config.json", "{}"), (tmp_path / "plain").touch()
    assert not is_fresh(tmp_path)
    assert config.stat().st_mode == (tmp_path / "plain").stat().st_mode

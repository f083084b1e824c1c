"""JSON lines: what is written, cut back, and left out when read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.base.jsonl import Line, Lines, cut, whole_lines


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
    cut(tmp_path / "absent", 0)
    with pytest.raises(TokenPOError, match="was changed since"):
        cut(path, size + 1)


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

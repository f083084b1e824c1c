"""Data files as nobody should write them: a list of problems, or one sentence that names the place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenpo.base.errors import TokenPOError
from tokenpo.tasks import held_out, make_task

few = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
plain = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=6),
    st.sampled_from(["\ud800", "", " ", "{question}", "\x00", "a" * 3000]),
)  # fmt: skip
anything = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
)
keys = st.sampled_from(["prompt", "answer", "solution", "reward_model", "extra", "role", "content"])
rows = st.dictionaries(
    keys, anything | st.lists(st.fixed_dictionaries({"role": anything, "content": anything}), max_size=2)
)


def opened(path: Path, **options: Any) -> bool:
    """Whether it makes a task whose problems can be asked and judged; else it is refused in one sentence."""
    try:
        task = make_task("files", {"path": str(path), **options}, 0)
    except TokenPOError as error:
        assert path.name in str(error) or "task 'files'" in str(error)
        assert "\n" not in str(error)
        return False
    for split in ("train", "test"):
        for problem in task.problems(split, 0, 3 if split == "train" else held_out(task, 3)):
            text = problem.prompt if isinstance(problem.prompt, str) else json.dumps(problem.prompt, ensure_ascii=False)
            assert text.encode()
            task.score([problem], [r"\boxed{1}"], [[1]])
    task.close()
    return True


@few
@given(st.lists(rows, max_size=4), st.booleans())
def test_any_rows(tmp_path_factory, content: list[dict[str, Any]], chat: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in content))
    opened(path, chat=chat)


@few
@given(
    st.binary(max_size=80),
    st.sampled_from([b"", b'{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": 1}\n', b"PAR1"]),
)
def test_any_bytes(tmp_path_factory, content: bytes, before: bytes) -> None:
    for suffix in (".jsonl", ".parquet"):
        path = tmp_path_factory.getbasetemp() / f"bytes{suffix}"
        path.write_bytes(before + content)
        opened(path)


def test_parquet_of_other_kinds_is_read_or_refused(tmp_path: Path) -> None:
    import datetime
    import decimal

    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    kinds = {
        "text": ["a", "b", "c"], "number": [1, 2, 3], "none": [None, None, None], "bytes": [b"\xff", b"", b"x"],
        "date": [datetime.date(1, 1, 1)] * 3, "decimal": [decimal.Decimal("1.5")] * 3,
        "chat": [[{"role": "user", "content": x}] for x in "abc"], "list": [["a"], [], None],
    }  # fmt: skip
    opens = set()
    for prompt in kinds:
        for answer in kinds:
            path = tmp_path / "rows.parquet"
            parquet.write_table(pyarrow.table({"prompt": kinds[prompt], "answer": kinds[answer]}), path)
            if opened(path):
                opens.add((prompt, answer))
    assert opens == {(p, a) for p in ("text", "chat") for a in ("text", "number")}

"""Rows of a JSONL or parquet file, each with its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base.errors import TokenPOError, nearest

Row = tuple[str, dict[str, Any]]  # ("train.jsonl line 3", columns)


def read_rows(path: Path) -> list[Row]:
    """Every row of a .jsonl or .parquet file.

    Raises:
        TokenPOError: no such file, an unknown suffix, a broken or an empty file.
    """
    if path.suffix not in READERS:
        hint = " (one JSON object a line is .jsonl)" if path.suffix == ".json" else ""
        raise TokenPOError(f"{path}: can't read files called *{path.suffix}{hint}; known: {', '.join(READERS)}")
    if not path.is_file():
        siblings = [p.name for p in path.parent.glob("*") if p.suffix in READERS] if path.parent.is_dir() else []
        raise TokenPOError(f"{path}: there is no such file in {path.parent.resolve()} ({nearest(path.name, siblings)})")
    try:
        rows = list(READERS[path.suffix](path))
    except OSError as error:
        raise TokenPOError(f"{path}: cannot be read: {error.strerror}") from error
    if not rows:
        raise TokenPOError(f"{path}: the file is empty, it needs at least one row")
    return rows


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        where = f"{path} line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError as error:
            raise TokenPOError(f"{where}: not UTF-8 text ({error.reason}): save the file as UTF-8") from error
        except (ValueError, RecursionError) as error:
            raise TokenPOError(f"{where}: not JSON ({error}): write one JSON object a line") from error
        if not isinstance(row, dict):
            raise TokenPOError(f"{where}: a {type(row).__name__}, not an object: write one JSON object a line")
        yield where, row


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TokenPOError(f"{path}: parquet files need pyarrow: pip install 'tokenpo[tasks]'") from error
    try:
        with parquet.ParquetFile(path) as file:
            rows = file.read().to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        raise TokenPOError(f"{path}: not a readable parquet file ({error}): write it again") from error
    for number, row in enumerate(rows):
        yield f"{path} row {number}", row


READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = MappingProxyType({".jsonl": _jsonl, ".parquet": _parquet})

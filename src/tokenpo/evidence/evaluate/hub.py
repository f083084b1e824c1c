"""Rows of a data set on the Hugging Face hub, through the package `datasets`. No code from a data set is ever run."""

from __future__ import annotations

from importlib import import_module
from itertools import zip_longest
from typing import Any

from ...base.errors import MissingInput, TokenPOError, nearest
from ...tasks.rows import Row

_OLDEST = 4  # the first major version of `datasets` that cannot run code from a data set at all


def hub_rows(hub: str, config: str, split: str, columns: list[str], most: int | None = None) -> list[Row]:
    """The rows of the splits "a+b+c" in turn, at most so many of each, with the words that say where each stands.

    Raises:
        TokenPOError: `datasets` is missing or too old, or the data set can't be had (offline, moved, gated).
        MissingInput: it has not these columns.
    """
    try:
        datasets: Any = import_module("datasets")
    except ImportError as error:
        raise TokenPOError(
            f"{hub} needs the package datasets: pip install 'tokenpo[hub]', or give a local copy with --data FILE"
        ) from error
    if int(str(datasets.__version__).partition(".")[0]) < _OLDEST:
        raise TokenPOError(
            f"datasets {datasets.__version__} may run code from a data set: pip install -U 'datasets>={_OLDEST}'"
        )
    parts: list[list[Row]] = []
    for part in split.split("+"):
        try:
            table = datasets.load_dataset(hub, config or None, split=part)
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise TokenPOError(
                f"the data set {hub} ({part}) can't be loaded from the hub: {reason[0].rstrip('.')}; "
                "give a local copy with --data FILE"
            ) from error
        _check(hub, list(table.column_names), columns)
        table = table.select_columns(columns).select(range(min(len(table), most or len(table))))
        parts.append([(f"{hub} {part} row {i}", dict(row)) for i, row in enumerate(table)])
    return [row for rows in zip_longest(*parts) for row in rows if row is not None]


def _check(hub: str, columns: list[str], required: list[str]) -> None:
    for name in required:
        if name not in columns:
            raise MissingInput(
                f"{hub} has no column {name!r} (columns: {', '.join(columns)}; {nearest(name, columns)}): "
                "name yours with --question, --answer or --prompt"
            )

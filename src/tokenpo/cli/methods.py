"""`tokenpo methods`: the table of the methods."""

from __future__ import annotations

import argparse
from typing import Any

from .options import add_command


def add(commands: Any) -> None:
    """The parser of `tokenpo methods`."""
    add_command(commands, "methods", "table of the methods: paper, provenance, needs").set_defaults(run=methods)


def methods(options: argparse.Namespace) -> int:
    """Prints one line for each method."""
    from ..methods import METHODS, method, paper

    rows = [("METHOD", "PAPER", "PROVENANCE", "NEEDS", "TITLE")]
    for name in METHODS:
        source, needs = paper(name), ", ".join(sorted(method(name).needs)) or "-"
        rows.append((name, source.reference, source.provenance, needs, source.title))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[4])
    return 0

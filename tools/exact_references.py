"""Puts the rows that every method is held against from docs/exact.json into the package.

python tools/exact_references.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenpo.lab.exact import study

SOURCE = Path(__file__).parents[1] / "docs" / "exact.json"


def main() -> int:
    held = study.load(SOURCE)
    rows = [held[contestant.label] for contestant in study.references()]
    for row in rows:
        for cell in row.cells.values():
            cell.code = ""  # a test says whether the program still makes them
    study.save(rows, study.HERE / "references.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())

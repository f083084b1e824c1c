"""Writes the table of docs/parity.md: how far every engine's loss path is from the objective, method by method.

    python tools/site/parity.py                  compute all of it and write the table: a minute on an idle core
    python tools/site/parity.py --method NAME    compute these rows only (may be repeated), keep the others
    python tools/site/parity.py --check          write nothing; exit 1 where a number is larger than the page says, or a
                                            method is not what the page says

It takes an environment with TRL and verl, as `make test-engines` sets it up.
"""

import argparse
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layout import filled, method_link, table

from tokenpo.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "parity.md"
COMMAND = "python tools/site/parity.py"
REFUSED = "rejected"
# Column -> (its field in what was measured, the smallest bound that is told).
COLUMNS = {
    "embedded": ("embedded", 1e-5),
    "TRL": ("trl", 1e-5),
    "verl, 1 rank": ("verl_1", 1e-12),
    "verl, 2 ranks": ("verl_2", 1e-12),
}


def bound(value: float, floor: float) -> float:
    """The power of ten that a difference is held under, at least `floor`.

    Raises:
        SystemExit: it is not finite, or too large to be rounding.
    """
    if not value < 1e-3:
        raise SystemExit(f"a difference of {value:.3g} is no rounding: this engine does not compute the objective")
    return max(floor, 10.0 ** math.ceil(math.log10(value)) if value else 0.0)


def told(value: float) -> str:
    return f"1e{round(math.log10(value))}"


def cells(found: Any) -> dict[str, str]:
    """Column -> cell of one method."""
    row = {}
    for column, (field, floor) in COLUMNS.items():
        gap = getattr(found, field)
        row[column] = REFUSED if gap is None else f"{told(bound(gap.loss, floor))}, {told(bound(gap.gradient, floor))}"
    return row


def methods(rows: Mapping[str, Mapping[str, str]]) -> str:
    """The table, from the cells of each method."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in METHODS:
        alike.setdefault(tuple(rows[name][column] for column in COLUMNS), []).append(method_link(name))
    return table(("methods", *COLUMNS), [(" ".join(names), *found) for found, names in alike.items()])


def written(text: str) -> dict[str, dict[str, str]]:
    """Cells of a page, by method."""
    found = re.findall(r"^\| (\[`.*?) \| (.*) \|$", text, re.MULTILINE)
    cells_of = {name: cells.split(" | ") for names, cells in found for name in re.findall(r"\[`(\w+)`\]", names)}
    order = [*METHODS, *cells_of]
    return {name: dict(zip(COLUMNS, cells_of[name], strict=True)) for name in sorted(cells_of, key=order.index)}


def exceeded(old: str, new: str) -> bool:
    """Whether a cell is no longer true."""
    if REFUSED in (old, new):
        return old != new
    return any(float(now) > 1.5 * float(then) for then, now in zip(old.split(", "), new.split(", "), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", action="append", choices=list(METHODS), metavar="NAME")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page is not true")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that TRL's runs may take")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "tests"))
    from parity_support import measured

    names = options.method or list(METHODS)
    found = measured(names, timeout=options.timeout)
    new = {name: cells(found[name]) for name in names}
    text = PAGE.read_text(encoding="utf-8")
    rows = written(text)
    if options.check:
        stale = [
            name
            for name in names
            if name not in rows or any(exceeded(rows[name][column], new[name][column]) for column in COLUMNS)
        ]
        print("\n".join(f"not what docs/parity.md says: {name}: {new[name]}" for name in stale))
        return int(bool(stale))
    rows |= new
    if missing := [name for name in METHODS if name not in rows]:
        raise SystemExit(f"docs/parity.md has no row for {', '.join(missing)} yet: run {COMMAND} without --method")
    PAGE.write_text(filled(text, {"methods": lambda: methods(rows)}), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

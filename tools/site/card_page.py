"""What docs/card_study.md says, for the documents that quote it: its verdicts and its lines on both parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "card_study.md"
PARTS = ("longer", "card")  # in the order of the page's columns
OTHERS = ("clips", "habits")  # the third and fourth part, with tables of their own
BATCHES, GAIN = "batches of a run", "DAPO, KL held: mean accuracy above the base model's"
ROW = re.compile(r"\| [^|]+ \| (?P<pair>[^|]+) \| [^|]+ \| (?P<longer>[^|]* \| [^|]*) \| (?P<card>[^|]* \| [^|]*) \|")
FOURTH = "## Where much is to be learned"
OWN = re.compile(r"\| [^|]+ \| (?P<pair>[^|]+) \| [^|]+ \| (?P<own>[^|]* \| \*\*[^|]*\*\*) \|")
CELL = re.compile(r"([-+.\d]+) \((.+)\) \| \*\*(.+)\*\*")


@dataclass(frozen=True)
class Verdict:
    mean: str
    interval: str
    word: str  # as `Test.verdict` has it


def verdicts(text: str) -> dict[tuple[str, str], Verdict]:
    """(part, pair) -> what the table of verdicts says, where the part asks for that pair.

    >>> line = "| Alike? | cispo − dapo, held | alike |  |  | -0.002 (-0.011 to +0.007) | **alike** |"
    >>> verdicts(line)
    {('card', 'cispo − dapo, held'): Verdict(mean='-0.002', interval='-0.011 to +0.007', word='alike')}
    """
    before, _, fourth = text.partition(FOURTH)
    cells = [*_cells(ROW, before, {}), *_cells(OWN, before, {"own": "clips"}), *_cells(OWN, fourth, {"own": "habits"})]
    return {key: Verdict(*cell.groups()) for key, cell in cells if cell}


def _cells(form: re.Pattern[str], text: str, names: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], Any]]:
    """((part, pair), what its cell says, or None) of the rows of that form."""
    for row in filter(None, map(form.fullmatch, text.splitlines())):
        pair, *cells = row.groupdict().items()
        yield from (((names.get(part, part), pair[1]), CELL.fullmatch(cell)) for part, cell in cells)


def told(text: str, label: str) -> dict[str, str]:
    """part -> what the table of the two parts says in the row of that label.

    Raises:
        ValueError: there is no such row.
    """
    row = re.search(rf"^\| {re.escape(label)} \| (.+) \| (.+) \|$", text, re.MULTILINE)
    if row is None:
        raise ValueError(f"{PAGE.name} has no row {label!r}")
    return dict(zip(PARTS, row.groups(), strict=True))

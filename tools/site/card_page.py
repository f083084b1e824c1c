"""What docs/card_study.md says, for the documents that quote it: its verdicts and its lines on both parts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "card_study.md"
PARTS = ("longer", "card")  # in the order of the page's columns
CLIPS = "clips"  # the third part, with a table of its own
BATCHES, GAIN = "batches of a run", "DAPO, KL held: mean accuracy above the base model's"
ROW = re.compile(r"\| [^|]+ \| (?P<pair>[^|]+) \| [^|]+ \| (?P<longer>[^|]* \| [^|]*) \| (?P<card>[^|]* \| [^|]*) \|")
OF_CLIPS = re.compile(r"\| [^|]+ \| (?P<pair>[^|]+) \| [^|]+ \| (?P<clips>[^|]* \| \*\*[^|]*\*\*) \|")
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
    lines = text.splitlines()
    rows = [row for form in (ROW, OF_CLIPS) for row in map(form.fullmatch, lines) if row]
    cells = ((part, row["pair"], CELL.fullmatch(cell)) for row in rows for part, cell in row.groupdict().items())
    return {(part, pair): Verdict(*cell.groups()) for part, pair, cell in cells if cell}


def told(text: str, label: str) -> dict[str, str]:
    """part -> what the table of the two parts says in the row of that label.

    Raises:
        ValueError: there is no such row.
    """
    row = re.search(rf"^\| {re.escape(label)} \| (.+) \| (.+) \|$", text, re.MULTILINE)
    if row is None:
        raise ValueError(f"{PAGE.name} has no row {label!r}")
    return dict(zip(PARTS, row.groups(), strict=True))

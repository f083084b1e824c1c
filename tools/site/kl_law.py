"""The verdicts of docs/kl_law.md, for the documents that quote it."""

from __future__ import annotations

import re
from pathlib import Path

from card_page import Verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kl_law.md"
ROW = re.compile(
    r"\| (P\w+) \| (\w+) \| (\w+) \| ([^|]+) \| ([-+.\d]+) \| ([-+.\d]+ to [-+.\d]+)"
    r" \| [^|]* \| [^|]* \| \*\*(.+)\*\* \|"
)


def verdicts(text: str) -> dict[tuple[str, ...], Verdict]:
    """(prediction, task, base, pair) -> what the table of tests says.

    >>> verdicts("| P1 | budget | first | cispo - dapo | -0.002 | -0.011 to +0.007 | 1.000 | 0.004 | **alike** |")
    {('P1', 'budget', 'first', 'cispo - dapo'): Verdict(mean='-0.002', interval='-0.011 to +0.007', word='alike')}
    """
    rows = filter(None, map(ROW.fullmatch, text.splitlines()))
    return {row.groups()[:4]: Verdict(*row.groups()[4:]) for row in rows}

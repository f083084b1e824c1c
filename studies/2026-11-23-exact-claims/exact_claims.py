"""Judges exact_claims.toml by docs/exact*.json and writes its verdicts into docs/exact.md; --check: whether they are
current.

python exact_claims.py
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, starmap
from pathlib import Path

from tokenpo.base.text import number
from tokenpo.lab.exact import study
from tokenpo.lab.exact.table import CATALOGUE

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tools" / "site")]
DOCS = HERE.parents[1] / "docs"

from layout import WIDTH, filled, write  # noqa: E402

PAGE = DOCS / "exact.md"
FAR = 2.0  # standard errors
FILES = {"": "exact.json", "hot": "exact_sampler.json", "rounded": "exact_rounded.json"}
# Verdicts, in the order in which they are counted, and what is said of predictions that came to them.
COUNTED = {
    "holds": "hold",
    "smaller": "are smaller than claimed",
    "refuted": "are refuted",
    "not reached": "are not reached",
    "undecided": "are undecided",
}


@dataclass(frozen=True)
class Judged:
    """A prediction in one world; a standard error that is not known is 0."""

    world: str
    own: study.Number
    other: study.Number | None
    verdict: str

    @property
    def told(self) -> str:
        other = "" if self.other is None else f" against {_told(self.other)}"
        return f"{self.world}: {_told(self.own)}{other}, **{self.verdict}**"


def judge(change: str, margin: float, own: study.Number, other: study.Number | None) -> str:
    """The verdict on one difference or ratio."""
    if math.isnan(own.value) or (other is not None and math.isnan(other.value)):
        return "not reached"
    if change == "ratio":
        assert other is not None
        if math.inf in (own.value, other.value):
            return "not reached" if own.value == other.value else "refuted" if own.value == math.inf else "holds"
        ratio = own.value / other.value
        error = ratio * math.hypot(_error(own) / own.value, _error(other) / other.value)
        above = "smaller" if ratio - FAR * error > margin else "undecided"
        return "holds" if ratio + FAR * error <= margin else "refuted" if ratio - FAR * error > 1 else above
    if math.inf in (own.value, *([other.value] if other else [])):
        return "not reached"
    sign = 1 if change == "more" else -1
    difference = sign * (own.value - (other.value if other else 0.0))
    error = math.hypot(_error(own), _error(other) if other else 0.0)
    if difference >= margin and difference > FAR * error:
        return "holds"
    if difference <= -margin and -difference > FAR * error:
        return "refuted"
    return "smaller" if abs(difference) + FAR * error < margin else "undecided"


def judged() -> list[tuple[dict, list[str]]]:
    """Every claim of the file, and the lines that say what became of it."""
    rows = {sampler: study.load(DOCS / file) for sampler, file in FILES.items()}
    claims = tomllib.loads((HERE / "exact_claims.toml").read_text(encoding="utf-8"))["claim"]
    return [(claim, [*_section(claim, rows[claim.get("sampler", "")])]) for claim in claims]


def page() -> str:
    """The page with its verdicts by today's numbers."""
    claims = judged()
    same, differs = (
        _counted(lines for claim, lines in claims if ("sampler" in claim) == apart) for apart in (False, True)
    )
    lead = (
        f"{len(claims)} claims, where their assumption is true: of {same}; with a sampler that differs, of {differs}."
    )
    told = ["", *textwrap.wrap(lead, WIDTH, break_on_hyphens=False), ""]
    table = ["", "| claim | assumption true | assumption false |", "| --- | --- | --- |", *starmap(_row, claims), ""]
    folded = ["", *chain.from_iterable(lines for _, lines in claims)]
    parts = {"counted": told, "claims": table, "predictions": folded}
    made = {name: partial("\n".join, lines) for name, lines in parts.items()}
    return filled(PAGE.read_text(encoding="utf-8"), made)


def _row(claim: dict, lines: list[str]) -> str:
    """A line of the table: the claim, and its verdicts where the premise is true and where it is false."""
    cells = []
    for name in ("true", "false"):
        counted = Counter(verdicts(lines, name))
        cells.append(", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()) or "–")
    sampler = f" ({claim['sampler']} sampler)" if "sampler" in claim else ""
    return f"| {claim['paper']}: {claim['claim']}{sampler} | {cells[0]} | {cells[1]} |"


def verdicts(lines: Iterable[str], name: str) -> list[str]:
    """The verdicts in the worlds where the assumption is "true", or "false"."""
    return [match[1] for line in lines if (match := re.match(rf"- {name} in .*\*\*(.+)\*\*$", line))]


def _counted(sections: Iterable[list[str]]) -> str:
    """How many predictions came to which verdict where their assumption is true."""
    found = Counter(verdicts(chain.from_iterable(sections), "true"))
    said = [f"{found[verdict]} {words}" for verdict, words in COUNTED.items() if verdict in found]
    return f"{found.total()} predictions {', '.join(said)}"


def _section(claim: dict, rows: dict[str, study.Row]) -> Iterator[str]:
    """One claim: what it says, and what is seen where its premise is true and where it is false."""
    against = f" against `{claim['against']}`" if claim["against"] else ""
    margin = (
        f"at most {claim['margin']:g} times"
        if claim["change"] == "ratio"
        else f"{claim['change']} by {claim['margin']:g}"
    )
    sampler = f" ({claim['sampler']} sampler)" if "sampler" in claim else ""
    yield f"**{claim['paper']}: {claim['claim']}{sampler}**\n"
    yield f"`{claim['method']}`{against}: {CATALOGUE[claim['measure']].title}, {margin}.\n"
    yield f"Assumption: {claim['premise']}.\n"
    for name in ("true", "false"):
        for world in claim[name]:
            own, other = (_found(rows, claim[key], world, claim["measure"]) for key in ("method", "against"))
            if own is None:
                yield f"- {name} in {world}: not run"
                continue
            verdict = judge(claim["change"], claim["margin"], own, other)
            yield f"- {name} in {Judged(world, own, other, verdict).told}"
    yield ""


def _found(rows: dict[str, study.Row], label: str, world: str, key: str) -> study.Number | None:
    cell = rows[label].cells.get(world) if label in rows else None
    return cell.numbers[key] if cell else None


def _told(x: study.Number) -> str:
    value = "∞" if x.value == math.inf else number(round(x.value, 4) + 0.0)
    return f"{value} ± {number(x.error, 2)}" if _error(x) else value


def _error(x: study.Number) -> float:
    return x.error if math.isfinite(x.error) else 0.0


if __name__ == "__main__":
    sys.exit(write(PAGE, page()))

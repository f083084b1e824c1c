"""Judges exact_claims.toml by docs/exact*.json and writes docs/exact_claims.md; --check: whether it is current.

python exact_claims.py
"""

from __future__ import annotations

import itertools
import math
import re
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenpo.base.text import number
from tokenpo.lab.exact import study
from tokenpo.lab.exact.table import CATALOGUE

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tools" / "site")]
DOCS = HERE.parents[1] / "docs"

from layout import WIDTH  # noqa: E402

PAGE = DOCS / "exact_claims.md"
FAR = 2.0  # standard errors
FILES = {"": "exact.json", "hot": "exact_sampler.json", "rounded": "exact_rounded.json"}
HEAD = """<!-- Written by studies/2026-11-23-exact-claims/exact_claims.py. -->

# Claims on exact worlds

What papers claim, as predictions about [exact worlds](exact.md): where the premise of a method holds, a measure differs
by a margin. [exact_claims.toml](../studies/2026-11-23-exact-claims/exact_claims.toml) was written after a first look at
about ten methods and before they were run on all worlds; the claims on a sampler that differs, some of them ours, came
once the hot one had been seen, and are counted apart. The measures of training were changed since: batches and entropy
are those of the middle one of three step sizes, MaxRL's were to be those of the small one, and the area is that of
small noisy batches at each method's best step size. A world isolates a premise; what holds there says why a method
works, not how well it does on a language model.

"holds": beyond the margin and beyond 0 by two standard errors. "opposite": the same on the other side. "smaller": below
the margin by two standard errors. "not reached": training stays below J = 0.9. "undecided": none of these. GSPO's claim
holds in `forks_between_sure` because GRPO's update is worse there: nothing is left of either.

"""


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
            return "not reached" if own.value == other.value else "opposite" if own.value == math.inf else "holds"
        ratio = own.value / other.value
        error = ratio * math.hypot(_error(own) / own.value, _error(other) / other.value)
        above = "smaller" if ratio - FAR * error > margin else "undecided"
        return "holds" if ratio + FAR * error <= margin else "opposite" if ratio - FAR * error > 1 else above
    if math.inf in (own.value, *([other.value] if other else [])):
        return "not reached"
    sign = 1 if change == "more" else -1
    difference = sign * (own.value - (other.value if other else 0.0))
    error = math.hypot(_error(own), _error(other) if other else 0.0)
    if difference >= margin and difference > FAR * error:
        return "holds"
    if difference <= -margin and -difference > FAR * error:
        return "opposite"
    return "smaller" if abs(difference) + FAR * error < margin else "undecided"


def page() -> str:
    """The page as text."""
    rows = {sampler: study.load(DOCS / file) for sampler, file in FILES.items()}
    claims = tomllib.loads((HERE / "exact_claims.toml").read_text(encoding="utf-8"))["claim"]
    sections = [[*_section(claim, rows[claim.get("sampler", "")])] for claim in claims]
    same, differs = (
        _counted(lines for claim, lines in zip(claims, sections, strict=True) if ("sampler" in claim) == apart)
        for apart in (False, True)
    )
    lead = f"{len(claims)} claims. Where their premise is true: of {same} Under a sampler that differs: of {differs}"
    told = textwrap.wrap(lead, WIDTH, break_on_hyphens=False)
    table = ["| claim | premise true | premise false |", "| --- | --- | --- |", *map(_row, claims, sections)]
    folded = [
        '<details markdown="1"><summary>Every prediction with its numbers</summary>\n',
        *itertools.chain(*sections),
    ]
    return HEAD + "\n".join([*told, "", *table, "", *folded, "</details>", ""])


def _row(claim: dict, lines: list[str]) -> str:
    """A line of the table: the claim, and its verdicts where the premise is true and where it is false."""
    cells = []
    for name in ("true", "false"):
        counted = Counter(match[1] for x in lines if (match := re.match(rf"- {name} in .*\*\*(.+)\*\*$", x)))
        cells.append(", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()) or "–")
    sampler = f" ({claim['sampler']} sampler)" if "sampler" in claim else ""
    return f"| {claim['paper']}: {claim['claim']}{sampler} | {cells[0]} | {cells[1]} |"


def _counted(sections: Iterable[list[str]]) -> str:
    """How many predictions came to which verdict."""
    lines = itertools.chain(*sections)
    found = Counter(match[1] for line in lines if (match := re.match(r"- true in .*\*\*(.+)\*\*$", line)))
    return f"{found.total()} predictions {', '.join(f'{count} {verdict}' for verdict, count in found.most_common())}."


def _section(claim: dict, rows: dict[str, study.Row]) -> Iterator[str]:
    """One claim: what it says, and what is seen where its premise is true and where it is false."""
    against = f" against `{claim['against']}`" if claim["against"] else ""
    margin = (
        f"at most {claim['margin']:g} times"
        if claim["change"] == "ratio"
        else f"{claim['change']} by {claim['margin']:g}"
    )
    sampler = f" ({claim['sampler']} sampler)" if "sampler" in claim else ""
    yield f"### {claim['paper']}: {claim['claim']}{sampler}\n"
    yield f"`{claim['method']}`{against}: {CATALOGUE[claim['measure']].title}, {margin}.\n"
    yield f"Premise: {claim['premise']}.\n"
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


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE.name} is {'current' if current else 'out of date: python exact_claims.py'}")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

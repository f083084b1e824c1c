"""Writes docs/differences.md: what tests/conformance finds of every framework that is installed.

    python tools/site/differences.py             compute the sections of the frameworks that are here
    python tools/site/differences.py --check     exit 1 where one of them is not what the page says

`make test-engines` sets up an environment with TRL and verl, `make test-hosts` one for clones of SkyRL and prime-rl.
Sections of frameworks that are not here stay as they are.
"""

import argparse
import contextlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from layout import cell, table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from conformance import CASES, HOSTS, Finding, findings, verdict  # noqa: E402

PAGE = ROOT / "docs" / "differences.md"
TEXT = f"""\
<!-- Written by `python tools/site/differences.py` in the environments of the engines: do not edit. -->

# Where frameworks differ from the papers

A framework that has a method of the same name need not give the paper's numbers: a default stands where the paper chose
another, or the loss depends on how a step is cut up. [A test](../tests/conformance) puts one fixed batch of sixteen
responses, in float64, through the framework's own loss as its trainer calls it, and through ours, which is tested
against an independent implementation of each paper.

Every method is computed in these cases: {", ".join(CASES)}, the last only where the framework's credit is compared,
too. A difference is the largest of loss and gradient, relative to the reference; below 1e-6 the two agree. The two
ranks are one process that calls the loss for each.

Our trainers for [TRL](trl.md) and [verl](verl.md) do not use these losses: there the loss is ours. Everything else that
was compared is in [`tests/foreign`](../tests/foreign).
"""
SECTION = re.compile(r"<!-- (?P<host>\S+) -->\n(?P<text>.*?)(?=\n<!-- |\Z)", re.DOTALL)


def section(host: str) -> str:
    """What the framework gives: the cases that differ, with why, and folded those that agree."""
    name, found = findings(host)
    apart = table(
        ("method", "settings", "case", "its loss", "reference's", "difference", "why"),
        [(*_row(one), cell(one.why)) for one in found if not one.agrees],
    )
    count = sum(one.agrees for one in found)
    folded = f"<details>\n<summary>The {count} cases that agree</summary>\n\n{_agreeing(found)}\n\n</details>"
    return f"\n## {name}\n\n{verdict(name, found)}\n\n{apart}\n\n{folded}\n"


def _agreeing(found: Sequence[Finding]) -> str:
    """The methods that agree in some case, and the cases in which they don't."""
    apart: dict[tuple[str, str], list[str]] = {}
    for one in found:
        apart.setdefault((one.method, one.settings), []).extend([] if one.agrees else [one.case])
    rows = [
        (cell(method), cell(settings), f"all but {', '.join(cases)}" if cases else "all")
        for (method, settings), cases in apart.items()
        if any(one.agrees for one in found if (one.method, one.settings) == (method, settings))
    ]
    return table(("method", "settings", "cases"), rows)


def _row(one: Finding) -> tuple[str, ...]:
    # Below rounding a difference is not the same on every machine.
    size = f"{one.difference:.1e}" if one.difference > 1e-9 else "rounding"
    return cell(one.method), cell(one.settings), one.case, f"{one.host:.6g}", f"{one.reference:.6g}", size


def page(before: str) -> str:
    """The page, with the sections of `before` for frameworks that are not here."""
    known = {found["host"]: found["text"] for found in SECTION.finditer(before)}
    for host in HOSTS:
        with contextlib.suppress(ImportError):
            known[host] = section(host)
    return TEXT + "".join(f"\n<!-- {host} -->\n{known[host].rstrip()}\n" for host in HOSTS if host in known)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    before = PAGE.read_text(encoding="utf-8")
    check, text = parser.parse_args(given).check, page(before)
    if check:
        print(
            "as computed" if before == text else "docs/differences.md is stale: run `python tools/site/differences.py`"
        )
        return int(before != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

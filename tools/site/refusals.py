"""Writes docs/refusals.md: what each engine cannot honour, with the sentence that says so.

    python tools/site/refusals.py            ask every case, and write the page
    python tools/site/refusals.py --check    write nothing; exit 1 and print the stale lines

Run it in the environment of the engines, which `make test-engines` sets up: it imports TRL and verl. The
cases are those of tests/refusal_cases.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from refusal_cases.case import Case, Refusal, refusal  # noqa: E402
from refusal_cases.checks import check_case  # noqa: E402
from refusal_cases.page import PAGE, TITLES, page, section  # noqa: E402


def section_of(engine: str) -> tuple[str, list[str]]:
    """The engine's section, and what is wrong with its cases."""
    found: list[tuple[Case, Refusal]] = []
    wrong = []
    for case in importlib.import_module(f"refusal_cases.{engine}").CASES:
        try:
            found.append((case, refusal(case)))
            check_case(engine, *found[-1])
        except AssertionError as error:
            wrong.append(f"{engine}: {case.request}: {error}")
    return section(engine, [case for case, _ in found], [answer for _, answer in found]), wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    check = parser.parse_args(arguments).check
    found = {engine: section_of(engine) for engine in TITLES}
    if wrong := [line for _, lines in found.values() for line in lines]:
        print("\n".join(wrong))
        return 1
    text = page({engine: text for engine, (text, _) in found.items()})
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if check:
        known = before.splitlines()
        for line in (line for line in text.splitlines() if line not in known):
            print(f"stale: {line}")
        return int(text != before)
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {text.count(chr(10) + '| ') - 2 * len(TITLES)} refusals")
    return 0


if __name__ == "__main__":
    sys.exit(main())

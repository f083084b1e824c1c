"""Writes docs/refusals.md: what each engine cannot honour, with the sentence that says so.

    python tools/refusals.py            ask every case, and write the page
    python tools/refusals.py --check    write nothing; exit 1 and name what is not what is said

Run it in the environment of the engines, which `make test-engines` sets up: TRL and verl are asked themselves. The
cases are those of tests/refusal_cases.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from refusal_cases import Answers, check_case, section  # noqa: E402
from refusal_cases.page import PAGE, TITLES, page  # noqa: E402


def asked(engine: str, directory: Path) -> str:
    """The engine's section, every case held to what it must name."""
    answers, cases = Answers(directory), importlib.import_module(f"refusal_cases.{engine}").CASES
    directory.mkdir()
    for case in cases:
        check_case(engine, case, answers(case))
    return section(engine, cases, [answers(case) for case in cases])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    check = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory() as directory:
        text = page({engine: asked(engine, Path(directory, engine)) for engine in TITLES})
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

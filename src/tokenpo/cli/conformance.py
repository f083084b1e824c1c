"""`tokenpo conformance`: compare a host's own loss with the reference implementation of each paper."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from .options import add_command, add_flag

EXAMPLES = """examples:
  tokenpo conformance trl                    the TRL that is installed
  tokenpo conformance verl --json            every number, for a script
  PYTHONPATH=../SkyRL:../SkyRL/skyrl-gym tokenpo conformance skyrl
Exit status 0: all agree; 1: some differ; 2: the host is not installed.
"""


def add(commands: Any) -> None:
    about = "a framework's own losses beside the reference, by micro-batches, ranks, masks and turns"
    parser = add_command(commands, conformance, about, EXAMPLES)
    parser.add_argument("host", metavar="HOST", help="trl, verl, skyrl or prime-rl")
    add_flag(parser, "--json", "as JSON, one object for each case")


def conformance(options: argparse.Namespace) -> int:
    """Prints the verdict and a line for each case; 1 if a case differs."""
    from ..engines.conformance import findings, verdict

    name, cases = findings(options.host)
    differs = not all(case.agrees for case in cases)
    if options.json:
        report = {"host": name, "verdict": verdict(name, cases), "cases": [asdict(case) for case in cases]}
        print(json.dumps(report, indent=1, ensure_ascii=False))
        return int(differs)
    print(verdict(name, cases), "\n")
    row = "{:<12} {:<23} {:>12} {:>12} {:>9}  {}"
    print(row.format("METHOD", "CASE", "HOST'S LOSS", "REFERENCE'S", "DIFFERENCE", "").rstrip())
    settings = None
    for case in cases:
        if settings != (settings := (case.method, case.settings)):
            print(f"\n{case.method} | {case.settings}")
        numbers = f"{case.host:.6g}", f"{case.reference:.6g}", f"{case.difference:.1e}"
        print(row.format("", case.case, *numbers, "agrees" if case.agrees else "differs"))
        if case.why:
            print(f"{'':12} {case.why}")
    print(f"\n{verdict(name, cases)}")
    return int(differs)

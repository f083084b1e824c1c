"""`tokenpo conformance`: a host's own loss beside the reference implementation of each paper."""

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
    """Prints the verdict and a line for each case; 1 where one differs."""
    from ..engines.conformance import findings, verdict

    name, found = findings(options.host)
    apart = not all(one.agrees for one in found)
    if options.json:
        said = {"host": name, "verdict": verdict(name, found), "cases": [asdict(one) for one in found]}
        print(json.dumps(said, indent=1, ensure_ascii=False))
        return int(apart)
    print(verdict(name, found), "\n")
    row = "{:<12} {:<23} {:>12} {:>12} {:>9}  {}"
    print(row.format("METHOD", "CASE", "HOST'S LOSS", "REFERENCE'S", "DIFFERENCE", "").rstrip())
    settings = None
    for one in found:
        if settings != (settings := (one.method, one.settings)):
            print(f"\n{one.method} | {one.settings}")
        numbers = f"{one.host:.6g}", f"{one.reference:.6g}", f"{one.difference:.1e}"
        print(row.format("", one.case, *numbers, "agrees" if one.agrees else "differs"))
        if one.why:
            print(f"{'':12} {one.why}")
    print(f"\n{verdict(name, found)}")
    return int(apart)

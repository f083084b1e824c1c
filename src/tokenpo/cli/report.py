"""`tokenpo report`: the page of a run."""

from __future__ import annotations

import argparse
from typing import Any

from .options import add_command, need, path

EXAMPLES = """examples:
  tokenpo report runs/quickstart-hapo-seed1
  tokenpo report runs/quickstart-hapo-seed1 --beside runs/quickstart-grpo-seed1
What the page shows: docs/report.md
"""


def add(commands: Any) -> None:
    """The parser of `tokenpo report`."""
    parser = add_command(
        commands, "report", "write report.html of a run: its curves, and every traced token coloured", EXAMPLES
    )
    parser.add_argument("directory", metavar="RUN", type=path, help="the run directory")
    parser.add_argument(
        "--beside", metavar="OTHER", type=path, help="another run, whose tokens are shown beside, on the same scales"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=path,
        help="page to write; default: RUN/report.html, or RUN/beside-NAME.html with --beside",
    )
    parser.set_defaults(run=report)


def report(options: argparse.Namespace) -> int:
    """Writes the page and prints where."""
    need("jinja2")
    from ..evidence.report import write_report

    print(write_report(options.directory, options.out, options.beside))
    return 0

"""`tokenpo report`: its options, and what it does with them."""

from __future__ import annotations

import argparse

from .needs import need
from .paths import path

EXAMPLES = """examples:
  tokenpo report runs/quickstart-hapo-seed1
  tokenpo report runs/quickstart-hapo-seed1 --beside runs/quickstart-grpo-seed1
What the page shows: docs/report.md
"""


def add(commands: argparse._SubParsersAction) -> None:
    """The parser of `tokenpo report`."""
    parser = commands.add_parser(
        "report",
        help="write report.html of a run: its curves, and every traced token coloured",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    parser.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    need("jinja2")
    from ..evidence.report import write_report

    print(write_report(options.directory, options.out, options.beside))
    return 0

"""`tokenpo report`: the page of a run."""

from __future__ import annotations

import argparse
from typing import Any

from .options import add_command, argument, need, path, place

EXAMPLES = """examples:
  tokenpo report runs/quickstart-hapo-seed1
  tokenpo report runs/quickstart-hapo-seed1 --beside runs/quickstart-grpo-seed1
What the page shows: docs/report.md
"""


def add(commands: Any) -> None:
    about = "write report.html of a run: its curves, and every traced token coloured"
    parser = add_command(commands, report, about, EXAMPLES)
    argument(parser, "directory", "RUN", "the run directory")
    argument(parser, "--beside", "OTHER", "another run, whose tokens are shown beside, on the same scales", type=path)
    out = "page to write; default: RUN/report.html, or RUN/beside-NAME.html with --beside"
    place(parser, "--out", "FILE", out, folder=True)


def report(options: argparse.Namespace) -> int:
    """Writes the page and prints where."""
    need("jinja2")
    from ..evidence.report import write_report

    print(write_report(options.directory, options.out, options.beside))
    return 0

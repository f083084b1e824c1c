"""`tokenpo exact`: methods in worlds whose true gradient is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError, choose
from .options import ONE_METHOD, add_command, add_set, argument, need, objectives, place

if TYPE_CHECKING:
    from ..lab.exact.study import Row

EXAMPLES = """examples:
  tokenpo exact tepo hapo                                  three measures in twelve worlds
  tokenpo exact mine.py:late --page late.html              a method of your own, drawn
  tokenpo exact gtpo --world fork_sure_filler,wandering_fork --measure init/useful,drift/away
  tokenpo exact lopti --set network=true                   states share parameters
  tokenpo exact --json exact.json --page exact.html        all methods; goes on where it was interrupted

What is exact, the measures and the worlds: docs/exact.md
"""


def add(commands: Any) -> None:
    parser = add_command(commands, exact, "methods in small worlds whose true gradient is known", EXAMPLES)
    argument(parser, "methods", "METHOD", f"{ONE_METHOD}; default: all", nargs="*", default=[])
    argument(parser, "--world", "LIST", "worlds; 'large' is the six large ones; default: the twelve")
    argument(parser, "--measure", "LIST", "measures to print, as the page names them; default: three")
    kept = "all numbers; a method that stands in the file is not run again, and others are shown beside"
    place(parser, "--json", "FILE", kept)
    add_set(parser, "another setting: group, batch, network, adam, sampler", "KEY=VALUE")
    place(parser, "--page", "FILE", "a page of all numbers, drawn")


def exact(options: argparse.Namespace) -> int:
    """Studies the methods, prints a table for each measure, writes numbers and page.

    Raises:
        UnknownName: no such method, world or measure.
        TokenPOError: a method that cannot be run, or a file that cannot be read or written.
    """
    need("pydantic", "rich", "jinja2")
    from ..lab.exact import study, table
    from ..lab.exact.contestant import Contestant
    from ..lab.exact.setting import Setting
    from ..lab.exact.worlds import LARGE, TURNS, WORLDS

    measures = options.measure.split(",") if options.measure else table.SHOWN
    for key in measures:
        choose("measure", key, table.CATALOGUE)
    words = (options.world or ",".join(WORLDS)).split(",")
    names = [name for word in words for name in (LARGE if word == "large" else [word])]
    worlds = [choose("world", name, WORLDS | LARGE | TURNS)() for name in names]
    chosen, fresh = objectives(options.methods, "exact")
    # The user's own come first: a mistake in them is found before others have taken minutes.
    contestants = [Contestant(label, chosen[label]) for label in sorted(chosen, key=lambda label: label not in fresh)]
    setting = Setting.of(options.set)
    known = study.load(options.json) if options.json and options.json.exists() else {}
    study.require_setting(known, setting, options.json)
    known |= {label: row.with_cells_of(known.get(label)) for label, row in study.shipped(setting).items()}

    def done(rows: Mapping[str, Row], label: str, count: int) -> None:
        last = count == len(worlds)
        if last or sys.stderr.isatty():
            end = "\n" if last else "\r"
            print(f"{label}: {count} of {len(worlds)} worlds", end=end, file=sys.stderr, flush=True)
        if options.json and last:
            try:
                study.save(rows.values(), options.json)
            except TokenPOError as error:  # the table is still printed, and room may be made until the end
                print(f"tokenpo: {error}", file=sys.stderr)

    rows = study.all_rows(contestants, worlds, known, fresh, setting, done)
    shown = [row for row in rows if set(names) <= set(row.cells)]
    table.show(shown, names, measures, sys.stdout)
    if options.json:
        print(f"numbers: {study.save(rows, options.json)}")
    if options.page:
        from ..lab.exact.page import render
        from ..page.frame import write

        print(f"page: {write(render(shown, worlds), options.page)}")
    return 0

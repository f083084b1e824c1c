"""`tokenpo methods`: the table of the methods, by what each of them changes."""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
import sys
import textwrap
from typing import Any

from ..base.errors import TokenPOError, UnknownName, nearest
from .options import add_command, add_flag, argument

EXAMPLES = """examples:
  tokenpo methods                            all of them
  tokenpo methods clip                       those with this word in their name, summary, paper or needs
  tokenpo methods --needs old_entropy        those that read this input
  tokenpo methods --json                     everything about each, with its options and their defaults
`tokenpo show METHOD` has the formula.
"""
WIDEST = 10_000  # characters of a line that no terminal limits


def add(commands: Any) -> None:
    parser = add_command(commands, methods, "table of the methods: what each changes, its paper, its needs", EXAMPLES)
    argument(parser, "word", "WORD", "only methods with this in their description", nargs="?")
    argument(parser, "--needs", "INPUT", "only methods that read this input, such as old_entropy")
    add_flag(parser, "--json", "as JSON, one object for each")


def methods(options: argparse.Namespace) -> int:
    """Prints the methods that were asked for.

    Raises:
        UnknownName: no method reads the input.
        TokenPOError: no method has the word.
    """
    from ..methods import METHODS

    found = [described(name) for name in METHODS]
    if options.needs is not None:
        known = {need for method in found for need in method["needs"]}
        if options.needs not in known:
            raise UnknownName(f"--needs {options.needs}: no method reads it: {nearest(options.needs, known)}")
        found = [method for method in found if options.needs in method["needs"]]
    if options.word is not None:
        word = options.word.lower()
        found = [method for method in found if word in " ".join(map(str, list(method.values())[:-1])).lower()]
        if not found:
            raise TokenPOError(f"no method has {options.word!r} in its description: leave it out to see them all")
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False, default=str))
    else:
        _print(found)
    return 0


def described(name: str) -> dict[str, Any]:
    """Name, summary, paper, provenance, needs and options of a method, for JSON."""
    from ..methods import METHODS, method, options_of, paper

    source, build = paper(name), METHODS[name]
    return {
        "name": name,
        "changes": (inspect.getdoc(build) or "").partition("\n")[0],
        "title": source.title,
        "paper": source.reference,
        "provenance": source.provenance,
        "needs": sorted(method(name).needs),
        "options": {option: parameter.default for option, parameter in options_of(build).items()},
    }


def _print(found: list[dict[str, Any]]) -> None:
    """Name and number of the paper in columns, the words in what is left; one line each where nobody sees the width."""
    rows = [("METHOD", "PAPER", "WHAT IT CHANGES [WHAT IT READS]"), *map(_row, found)]
    wide = [max(len(row[column]) for row in rows) for column in range(2)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDEST
    for name, number, words in rows:
        begin = f"{name:<{wide[0]}}  {number:<{wide[1]}}  "
        room = max(width - 1, len(begin) + 20)
        print(
            textwrap.fill(words, room, initial_indent=begin, subsequent_indent=" " * len(begin), break_on_hyphens=False)
        )


def _row(method: dict[str, Any]) -> tuple[str, str, str]:
    number = method["paper"].removeprefix("arXiv:").partition(" ")[0].rstrip(";")
    words = method["changes"] + (f" [{', '.join(method['needs'])}]" if method["needs"] else "")
    if method["provenance"] not in ("paper", "code"):  # where the formula itself was read
        words += f" ({method['provenance']})"
    return method["name"], number, words

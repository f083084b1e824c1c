"""`tokenpo check`: methods held to the laws that every method obeys."""

from __future__ import annotations

import argparse
from typing import Any

from .options import METHODS, add_command, need


def add(commands: Any) -> None:
    """The parser of `tokenpo check`."""
    parser = add_command(commands, "check", "hold methods, also of your own, to the laws that every method obeys")
    parser.add_argument("methods", metavar="LIST", help=METHODS)
    parser.set_defaults(run=check)


def check(options: argparse.Namespace) -> int:
    """Prints each law with what was seen; 1 where a method breaks one.

    Raises:
        UnknownName: no such method or option.
    """
    need("pydantic")
    from ..core.laws import LAWS, Nonconforming, check_method, statement
    from ..recipe.command_line import parse_entries
    from ..recipe.objective import build_entry

    # A mistake in any of them is told before the first is held to anything.
    built = {entry.label: build_entry(entry) for entry in parse_entries(options.methods, "check")}
    broken = 0
    for label, objective in built.items():
        try:
            check_method(objective)
        except Nonconforming as error:
            broken += 1
            print(f"{label}: {error}")
        else:
            print(f"{label}: all {len(LAWS)} laws hold")
    if not broken:
        print(*(f"  {law.__name__}: {statement(law)}" for law in LAWS), sep="\n")
    return 1 if broken else 0

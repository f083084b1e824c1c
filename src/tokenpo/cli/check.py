"""`tokenpo check`: the laws that every method obeys, checked on methods."""

from __future__ import annotations

import argparse
from typing import Any

from .options import METHODS, add_command, argument, need


def add(commands: Any) -> None:
    parser = add_command(commands, check, "hold methods, also of your own, to the laws that every method obeys")
    argument(parser, "methods", "LIST", METHODS)


def check(options: argparse.Namespace) -> int:
    """Prints the laws that hold and the first that a method breaks; 1 where one breaks any.

    Raises:
        UnknownName: no such method or option.
    """
    need("pydantic")
    from ..core.laws import LAWS, Nonconforming, check_method, statement
    from ..recipe.command_line import parse_entries
    from ..recipe.objective import build_entry

    # All are built, and their mistakes found, before the first is checked.
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

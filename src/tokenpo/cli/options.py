"""What several commands share: the parser of a command, output paths, methods by name and required packages."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError
from ..base.files import expanded

if TYPE_CHECKING:
    from ..core.objective import Objective

RECIPE = "path of a TOML file, or the name of a recipe in the package"
METHOD = "a name that `tokenpo methods` lists, or a builder of your own: file.py:function"
METHODS = "METHOD, METHOD:KEY=VALUE,... or LABEL@METHOD:KEY=VALUE,..."
ONE_METHOD = f"{METHOD}; METHOD:KEY=VALUE,... with options"


class Command(argparse.ArgumentParser):
    """The parser of a command."""

    def take(self, name: str, metavar: str, help: str, *, group: Any = None, **more: Any) -> None:
        """Adds an argument with a value; metavar N means a whole number, and DIR, FILE and RUN mean a path."""
        kind = {"N": int, "DIR": expanded, "FILE": expanded, "RUN": expanded}.get(metavar)
        (group or self).add_argument(name, metavar=metavar, help=help, **{"type": kind, **more})

    def flag(self, name: str, help: str) -> None:
        self.add_argument(name, action="store_true", help=help)


def add_command(commands: Any, run: Callable, help: str, examples: str = "", name: str = "") -> Command:
    """The parser of a command, named `name` or after its function; `examples` follow its options in --help."""
    form = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(name or run.__name__, help=help, epilog=examples or None, formatter_class=form)
    parser.set_defaults(run=run)
    return parser


def objectives(text: str, command: str) -> dict[str, Objective]:
    """The methods of a list by label."""
    from ..train.recipe.command_line import parse_entries
    from ..train.recipe.objective import build_entry

    return {entry.label: build_entry(entry) for entry in parse_entries(text, command)}


def need_engine() -> None:
    need("pydantic", "rich", "transformers", "safetensors")


def need(*packages: str, extra: str = "train") -> None:
    """Raises TokenPOError with the remedy if packages of an extra are missing."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise TokenPOError(f"this command needs {', '.join(missing)}: pip install 'tokenpo[{extra}]'")

"""What several commands share: the parser of a command, output paths, methods by name and required packages."""

from __future__ import annotations

import argparse
import errno
import os
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError
from ..base.files import expanded
from ..train.recipe.engines import EMBEDDED, ENGINES, TINKER

if TYPE_CHECKING:
    from ..core.objective import Objective

RECIPE = "path of a TOML file, or the name of a recipe in the package"
METHOD = "a name that `tokenpo methods` lists, or a builder of your own: file.py:function"
METHODS = "METHOD, METHOD:KEY=VALUE,... or LABEL@METHOD:KEY=VALUE,..."
ONE_METHOD = f"{METHOD}; METHOD:KEY=VALUE,... with options"


class Command(argparse.ArgumentParser):
    """A parser whose positional arguments may stand between options: `exact tepo --world two_modes gtpo`."""

    _nested = False  # argparse parses intermixed arguments by calling this method again

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self._nested:
            return super().parse_known_args(args, namespace)
        self._nested = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._nested = False

    def take(self, name: str, metavar: str, help: str, *, group: Any = None, **more: Any) -> None:
        """Adds an argument with a value; metavar N means a whole number, and DIR, FILE and RUN mean a path."""
        kind = {"N": int, "DIR": path, "FILE": path, "RUN": path}.get(metavar)
        (group or self).add_argument(name, metavar=metavar, help=help, **{"type": kind, **more})

    def write(self, name: str, metavar: str, help: str, *, folder: bool = False) -> None:
        """Adds the FILE or DIR that the command writes; `folder`: a directory that exists will do for the file."""
        self.take(name, metavar, help)
        self.set_defaults(place=(name.lstrip("-"), "either" if folder else metavar))

    def flag(self, name: str, help: str) -> None:
        self.add_argument(name, action="store_true", help=help)

    def settings(self, engine: str, change: str) -> None:
        """Adds --engine and --set, with their meanings."""
        self.add_argument("--engine", choices=ENGINES, default=EMBEDDED, help=f"{engine}; default: {EMBEDDED}")
        self.take("--set", "SECTION.KEY=VALUE", f"{change}; may be repeated", action="append", default=[])


def add_command(commands: Any, run: Callable, help: str, examples: str = "", name: str = "") -> Command:
    """The parser of a command, named `name` or after its function; `examples` follow its options in --help."""
    form = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(name or run.__name__, help=help, epilog=examples or None, formatter_class=form)
    parser.set_defaults(run=run)
    return parser


def try_place(options: argparse.Namespace) -> None:
    """Checks before the work that the command's output can be written; else raises TokenPOError."""
    name, makes = getattr(options, "place", ("", ""))
    if (target := getattr(options, name, None)) is None:
        return
    try:
        inside = target.is_dir()
        if inside and makes == "FILE":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        home = target if inside else target.parent
        if makes == "DIR":  # it is made with its parents
            home = next((folder for folder in (home, *home.parents) if folder.exists()), home)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise TokenPOError(f"cannot write {target}: {error.strerror}; give another place with --{name}") from error


def path(text: str) -> Path:
    """A path, for argparse's `type`; a leading ~, which a shell doesn't expand in quotes, is the home directory."""
    try:
        return expanded(text)
    except TokenPOError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def objectives(text: str, command: str) -> dict[str, Objective]:
    """The methods of a list by label."""
    from ..train.recipe.command_line import parse_entries
    from ..train.recipe.objective import build_entry

    return {entry.label: build_entry(entry) for entry in parse_entries(text, command)}


def need_engine(engine: str = EMBEDDED) -> None:
    need("pydantic", "rich", "transformers", "safetensors")
    if engine == TINKER:
        need("tinker", extra="tinker")


def need(*packages: str, extra: str = "train") -> None:
    """Raises TokenPOError with the remedy if packages of an extra are missing."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise TokenPOError(f"this command needs {', '.join(missing)}: pip install 'tokenpo[{extra}]'")

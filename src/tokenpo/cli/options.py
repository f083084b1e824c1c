"""Helpers shared by several commands: arguments, output paths and required packages."""

from __future__ import annotations

import argparse
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError
from ..base.files import expanded
from ..train.recipe.engines import EMBEDDED, ENGINES, TINKER

if TYPE_CHECKING:
    from ..core.objective import Objective
    from ..train.recipe.command_line import Entry

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


def add_command(commands: Any, run: Callable, help: str, examples: str = "", name: str = "") -> argparse.ArgumentParser:
    """The parser of a command, named `name` or after its function; `examples` follow its options in --help."""
    form = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(name or run.__name__, help=help, epilog=examples or None, formatter_class=form)
    parser.set_defaults(run=run)
    return parser


def argument(parser: Any, name: str, metavar: str, help: str, **more: Any) -> None:
    """Adds an argument with a value; metavar N means a whole number, and DIR, FILE and RUN mean a path."""
    kind = {"N": int, "DIR": path, "FILE": path, "RUN": path}.get(metavar)
    parser.add_argument(name, metavar=metavar, help=help, **{"type": kind, **more})


def place(parser: Any, name: str, metavar: str, help: str, *, folder: bool = False) -> None:
    """Adds an argument for a FILE or DIR to write; `folder`: a directory that exists will do for the file."""
    argument(parser, name, metavar, help)
    makes = "DIR" if metavar == "DIR" else "either" if folder else "FILE"
    parser.set_defaults(places={**(parser.get_default("places") or {}), name.lstrip("-"): makes})


def try_places(options: argparse.Namespace) -> None:
    """Checks before the work that every output path can be written.

    Raises:
        TokenPOError: no file can be made there.
    """
    for name, makes in getattr(options, "places", {}).items():
        if (target := getattr(options, name)) is None:
            continue
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


def add_flag(parser: Any, name: str, help: str) -> None:
    parser.add_argument(name, action="store_true", help=help)


def add_engine(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("--engine", choices=ENGINES, default=EMBEDDED, help=f"{meaning}; default: {EMBEDDED}")


def add_set(parser: argparse.ArgumentParser, meaning: str, form: str = "SECTION.KEY=VALUE") -> None:
    argument(parser, "--set", form, f"{meaning}; may be repeated", action="append", default=[])


def path(text: str) -> Path:
    """A path, for argparse's `type`; a leading ~, which a shell doesn't expand in quotes, is the home directory."""
    try:
        return expanded(text)
    except TokenPOError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def one_entry(text: str, command: str) -> Entry:
    """The method of a command that takes only one; raises TokenPOError for several."""
    from ..train.recipe.command_line import parse_entries

    first, *others = parse_entries(text, command)
    if others:
        raise TokenPOError(f"{command} {text!r} names {1 + len(others)} methods: give one at a time")
    return first


def objectives(names: list[str], command: str) -> tuple[dict[str, Objective], set[str]]:
    """The named methods by label, or all without names; and the labels of the user's own."""
    from ..methods import METHODS, method
    from ..train.recipe.command_line import parse_entries
    from ..train.recipe.objective import build_entry

    if not names:
        return {name: method(name) for name in METHODS}, set()
    entries = parse_entries(",".join(names), command)
    return {entry.label: build_entry(entry) for entry in entries}, {e.label for e in entries if ":" in e.method}


def need_engine() -> None:
    need("pydantic", "rich", "transformers", "safetensors")


def need(*packages: str) -> None:
    """Raises TokenPOError with the remedy if packages of the extra `train` are missing."""
    from importlib.util import find_spec

    if missing := [name for name in packages if find_spec(name) is None]:
        raise TokenPOError(f"this command needs {', '.join(missing)}: pip install 'tokenpo[train]'")


def require_installed(engine: str) -> None:
    """Raises TokenPOError with the remedy if the engine's package is missing."""
    from importlib.util import find_spec

    if engine == TINKER and find_spec("tinker") is None:
        raise TokenPOError("--engine tinker needs tinker: pip install 'tokenpo[tinker]'")

"""What several commands share: options, paths, and what must be installed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import TokenPOError
from ..base.files import expanded

if TYPE_CHECKING:
    from ..core.objective import Objective

RECIPE = "path of a TOML file, or the name of a recipe in the package"
METHOD = "a name that `tokenpo methods` lists, or a builder of your own: file.py:function"
METHODS = "METHOD, METHOD:KEY=VALUE,... or LABEL@METHOD:KEY=VALUE,..."


class Command(argparse.ArgumentParser):
    """A parser whose positional arguments may stand between options: `gradients RUN --step 4 dapo`."""

    _apart = False  # whether options and positionals are being read one after the other

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self._apart:
            return super().parse_known_args(args, namespace)
        self._apart = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._apart = False


def add_command(commands: Any, name: str, help: str, examples: str = "") -> argparse.ArgumentParser:
    """A command's parser; `examples` stand below its options as they are."""
    return commands.add_parser(
        name, help=help, epilog=examples or None, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """What `train` and `launch` change in a recipe, and where and in how many processes it is trained."""
    parser.add_argument("--method", metavar="NAME", help=f"another method, with its own defaults: {METHOD}")
    add_set(parser, "change a setting")
    parser.add_argument(
        "--out", metavar="DIR", help="the run directory; default: output.dir, or runs/RECIPE-METHOD-seedN"
    )
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="processes of the engine trl, one per GPU; default: 1"
    )


def add_set(parser: argparse.ArgumentParser, meaning: str, form: str = "SECTION.KEY=VALUE") -> None:
    parser.add_argument("--set", action="append", default=[], metavar=form, help=f"{meaning}; may be repeated")


def path(text: str) -> Path:
    """For argparse's `type`: a path with the home directory for a leading ~, which a shell leaves where it is quoted.

    Raises:
        ArgumentTypeError: the home of a user who is not known here.
    """
    try:
        return expanded(text)
    except TokenPOError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def objectives(asked: list[str], command: str) -> tuple[dict[str, Objective], set[str]]:
    """The methods that were named, by label, else all; and the labels of those whose code is the user's.

    Raises:
        UnknownName: no such method or option.
        TokenPOError: a label twice, or an option of the wrong kind.
    """
    from ..methods import METHODS, method
    from ..recipe.command_line import parse_entries
    from ..recipe.objective import build_entry

    if not asked:
        return {name: method(name) for name in METHODS}, set()
    entries = parse_entries(",".join(asked), command)
    made = {entry.label: build_entry(entry) for entry in entries}
    return made, {entry.label for entry in entries if ":" in entry.method}


def need_engine() -> None:
    """Raises TokenPOError with the remedy where the embedded engine's packages are missing."""
    need("pydantic", "rich", "transformers", "safetensors")


def need(*packages: str) -> None:
    """Raises TokenPOError with the remedy where packages of the extra `train` are missing."""
    from importlib.util import find_spec

    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise TokenPOError(f"this command needs {', '.join(missing)}: pip install 'tokenpo[train]'")

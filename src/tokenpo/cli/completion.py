"""`tokenpo completion`: what a shell needs to complete commands, options, recipes and methods."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from .options import add_command, need, path

EXAMPLES = """examples:
  tokenpo completion bash > ~/.local/share/bash-completion/completions/tokenpo
  tokenpo completion zsh > ~/.zfunc/_tokenpo               with fpath+=~/.zfunc before compinit
"""
# Names and files, in the words of each shell.
FUNCTIONS = {
    "bash": "_tokenpo_{what}() {{ compgen -W '{names}' -- $1; compgen -f -- $1; }}",
    "zsh": "_tokenpo_{what}() {{ _alternative 'names:{what}:({names})' 'files:file:_files' }}",
}


def add(commands: Any) -> None:
    parser = add_command(commands, completion, "print the completions of a shell", EXAMPLES)
    parser.add_argument("shell", choices=tuple(FUNCTIONS), help="which shell")


def completion(options: argparse.Namespace) -> int:
    """Prints the script; recipes and methods in it are those of now."""
    need("shtab", "pydantic")
    import shtab

    top, names = options.program, _names()
    _mark(top, names)
    functions = "\n".join(FUNCTIONS[options.shell].format(what=what, names=" ".join(x)) for what, x in names.items())
    preamble: Any = {options.shell: functions}
    print(shtab.complete(top, shell=options.shell, preamble=preamble))
    return 0


def _names() -> dict[str, Sequence[str]]:
    """What may stand for an argument, by its name in the code; a file may, too."""
    from ..methods import METHODS
    from ..recipe.files import shipped_recipes
    from ..tasks import TASKS

    return {"method": list(METHODS), "methods": list(METHODS), "recipe": list(shipped_recipes()), "task": list(TASKS)}


def _mark(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Tells shtab what completes each argument of a command and of those below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark(command, names)
        elif action.dest in names:
            action.complete = dict.fromkeys(FUNCTIONS, f"_tokenpo_{action.dest}")  # type: ignore[attr-defined]
        elif action.metavar in ("DIR", "MODEL") or action.type is path:
            action.complete = {"bash": "_shtab_compgen_files", "zsh": "_files"}  # type: ignore[attr-defined]

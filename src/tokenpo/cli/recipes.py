"""`tokenpo recipes`: the recipes of the package, or one of them with every setting."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .options import RECIPE, add_command, argument, need_engine


def add(commands: Any) -> None:
    parser = add_command(commands, recipes, "list the recipes of the package, or print one with every setting")
    argument(parser, "recipe", "RECIPE", RECIPE, nargs="?")


def recipes(options: argparse.Namespace) -> int:
    """Prints the list, or the recipe."""
    need_engine()
    from ..recipe.config import load_config
    from ..recipe.files import PAPERS, find_recipe, shipped_recipes, to_toml

    if options.recipe:
        print(to_toml(load_config(find_recipe(options.recipe)), explain=True), end="")
        return 0
    shipped = shipped_recipes()
    width = max(map(len, shipped)) + 2
    lines = {name: name.ljust(width) + _first_line(file) for name, file in shipped.items()}
    print(*(line for name, line in lines.items() if not name.startswith(PAPERS)), sep="\n")
    print("\nset-ups of papers, for verl on a cluster; none of them was run here:")
    print(*(line for name, line in lines.items() if name.startswith(PAPERS)), sep="\n")
    return 0


def _first_line(recipe: Path) -> str:
    return recipe.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")

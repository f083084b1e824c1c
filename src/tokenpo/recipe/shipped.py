"""The recipes that the package holds, by name."""

from __future__ import annotations

from pathlib import Path

from ..base.errors import TokenPOError, UnknownName, nearest
from ..base.files import expanded

RECIPES = Path(__file__).parent / "recipes"
PAPERS = "papers/"


def shipped_recipes() -> dict[str, Path]:
    """The recipes of the package by name: "quickstart", "papers/dapo_qwen2.5_32b"."""
    files = sorted(RECIPES.rglob("*.toml"))
    return {file.relative_to(RECIPES).as_posix().removesuffix(".toml"): file for file in files}


def find_recipe(name: str) -> Path:
    """A recipe by path, or by the name of one in the package (tokenpo/recipe/recipes/NAME.toml).

    Raises:
        TokenPOError: no such file, no such name.
    """
    path = expanded(name)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    folders = {Path(known).parent for known in shipped}
    if path.suffix in (".toml", ".json") or path.parent not in folders:
        raise TokenPOError(f"recipe {name} is not a file: give the path of a TOML file, or one of {', '.join(shipped)}")
    raise UnknownName(f"no recipe is called {name!r}: {nearest(name, shipped)}")

"""The tables of docs/papers_recipes.md: every number of recipes/papers/*.toml with the source written behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from layout import cell, code, linked, table

BEGIN, END = "<!-- recipes -->", "<!-- /recipes -->"
_SECTION = re.compile(r"\[(?P<path>.+)\]")
_SOURCE = re.compile(r"#   (?P<name>\w+): (?P<text>.+)")
_VALUE = re.compile(r"(?P<key>[\w.]+) = (?P<value>.+?)  +# (?P<source>.+)")


@dataclass(frozen=True)
class Recipe:
    """One file: `numbers` is key -> (value, source)."""

    name: str
    title: str
    sources: dict[str, str]
    numbers: dict[str, tuple[str, str]]

    @property
    def method(self) -> str:
        return self.name.partition("_qwen")[0]

    @property
    def model(self) -> str:
        return "Qwen" + self.name.partition("_qwen")[2].replace("_", "-")


def read(file: Path) -> Recipe:
    lines = file.read_text(encoding="utf-8").splitlines()
    return Recipe(file.stem, lines[0].lstrip("# "), _sources(lines), dict(_numbers(lines)))


def page(text: str, folder: Path) -> str:
    """The page with its tables re-made between the two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page lacks {BEGIN} ... {END}, between which the tables of the recipes belong")
    return f"{before}{BEGIN}\n{tables(folder)}\n{END}{after}"


def tables(folder: Path) -> str:
    """One section per method, its recipes side by side."""
    groups: dict[str, list[Recipe]] = {}
    for file in sorted(folder.glob("*.toml")):
        recipe = read(file)
        groups.setdefault(recipe.method, []).append(recipe)
    return "\n\n".join(_section(recipes) for recipes in groups.values())


def _section(recipes: list[Recipe]) -> str:
    commands = "\n".join(f"tokenpo launch papers/{recipe.name} --engine verl --print" for recipe in recipes)
    meanings: dict[str, list[str]] = {}
    for recipe in recipes:
        for name, text in recipe.sources.items():
            meanings.setdefault(name, []).append(text)
    legend = "\n".join(f"- *{name}*: {linked('; '.join(dict.fromkeys(texts)))}" for name, texts in meanings.items())
    keys = dict.fromkeys(key for recipe in recipes for key in recipe.numbers)
    rows = [(f"`{key}`", *(_value(recipe, key) for recipe in recipes), _origin(recipes, key)) for key in keys]
    head = ("setting", *(recipe.model for recipe in recipes), "source")
    return f"### `{recipes[0].method}`\n\n```sh\n{commands}\n```\n\n{legend}\n\n{table(head, rows)}"


def _value(recipe: Recipe, key: str) -> str:
    return code(recipe.numbers[key][0]) if key in recipe.numbers else "-"


def _origin(recipes: list[Recipe], key: str) -> str:
    """The source once where all recipes name the same, else behind each model."""
    said = {recipe.model: recipe.numbers[key][1] for recipe in recipes if key in recipe.numbers}
    if len(set(said.values())) == 1:
        return cell(next(iter(said.values())))
    return cell("; ".join(f"{model}: {source}" for model, source in said.items()))


def _sources(lines: list[str]) -> dict[str, str]:
    """name -> what it stands for, from the head of the file; a deeper indent goes on."""
    found: dict[str, str] = {}
    for line in lines:
        if not line.startswith("#"):
            break
        if match := _SOURCE.fullmatch(line):
            found[match["name"]] = match["text"]
        elif line.startswith("#     ") and found:
            found[next(reversed(found))] += " " + line.lstrip("# ")
    return found


def _numbers(lines: list[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    path = ""
    for line in lines:
        if match := _SECTION.fullmatch(line):
            path = match["path"].replace('"', "") + "."
        elif match := _VALUE.fullmatch(line):
            yield path + match["key"], (match["value"].strip('"'), match["source"])

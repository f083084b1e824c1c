"""The generated half of docs/papers_recipes.md: for each paper its commands, what they ask of GPUs, the first ten steps
on the tiny model, and every number of recipes/papers/*.toml with the source written behind it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import first_steps
from layout import cell, code, filled, linked, table

from tokenpo.base.errors import Unsupported
from tokenpo.engines.trl.recipe import require, schedule
from tokenpo.methods import paper
from tokenpo.recipe.config import Config, load_config
from tokenpo.recipe.files import PAPERS, find_recipe
from tokenpo.recipe.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import estimate_recipe  # noqa: E402

GPU = "H100"
_SECTION = re.compile(r"\[(?P<path>.+)\]")
_SOURCE = re.compile(r"#   (?P<name>\w+): (?P<text>.+)")
_VALUE = re.compile(r"(?P<key>[\w.]+) = (?P<value>.+?)  +# (?P<source>.+)")
# Of the section [verl]: how GPUs and memory are divided, what TRL's command says too, and TRL's own default.
_ELSEWHERE = (
    "nnodes", "n_gpus_per_node", "_offload", "fsdp_size", "parallel_size", "gpu_memory_utilization",
    "max_num_batched_tokens", "train_files", "val_files", "lr_warmup_steps", "rollout.top_p",
)  # fmt: skip
_REMEDY = re.compile(r"--set (\S+?=[^\s,;]+)")


@dataclass(frozen=True)
class Recipe:
    """One file: `numbers` is key -> (value, source)."""

    name: str
    config: Config
    sources: dict[str, str]
    numbers: dict[str, tuple[str, str]]

    @property
    def method(self) -> str:
        return self.config.method.name

    @property
    def model(self) -> str:
        return "Qwen" + self.name.partition("_qwen")[2].replace("_", "-")


def read(file: Path) -> Recipe:
    lines = file.read_text(encoding="utf-8").splitlines()
    return Recipe(file.stem, load_config(file), _sources(lines), dict(_numbers(lines)))


def page(text: str, folder: Path) -> str:
    """The page with its sections re-made between the two marks."""
    return filled(text, {"recipes": lambda: sections(folder)})


def sections(folder: Path) -> str:
    """One section per paper, its recipes side by side, and what all recipes have in common."""
    recipes = [read(file) for file in sorted(folder.glob("*.toml"))]
    papers: dict[str, list[Recipe]] = {}
    for recipe in recipes:
        papers.setdefault(paper(recipe.method).reference, []).append(recipe)
    text = [_section(those, recipes) for those in papers.values()]
    shared = f"## Settings of all recipes\n\n{_shared(recipes, _common(recipes))}"
    return "\n\n".join([_in_trl(recipes), *text, shared])


def _section(recipes: list[Recipe], every: list[Recipe]) -> str:
    methods = list(dict.fromkeys(recipe.method for recipe in recipes))
    title = " and ".join(f"`{method}`" for method in methods)
    origin = paper(methods[0])
    commands = "\n".join(f"{command} --print" for recipe in recipes for command in (verl(recipe), trl(recipe.config)))
    return "\n\n".join(
        [
            f"## {title}",
            f"{cell(origin.title)}, {linked(origin.reference)}.",
            f"```sh\n{commands}\n```",
            *_left_out(recipes, every),
            _expected(recipes),
            *(_first(method, several=len(methods) > 1) for method in methods),
            _settings(recipes, _common(every)),
        ]
    )


def verl(recipe: Recipe) -> str:
    return f"tokenpo launch papers/{recipe.name} --engine verl"


def trl(config: Config) -> str:
    """The command for the GPUs of one machine, with what the refusals ask for and the warm-up in updates.

    Raises:
        SystemExit: a refusal that names nothing to set.
    """
    warmup = config.verl["actor_rollout_ref"].get("actor", {}).get("optim", {}).get("lr_warmup_steps", 0)
    given = [f"train.warmup={warmup * config.train.minibatches * config.train.epochs}"] if warmup else []
    processes = config.verl["trainer"]["n_gpus_per_node"]
    while sentence := refusal(config, given, processes):
        remedy = _REMEDY.search(sentence)
        if remedy is None or remedy[1] in given:
            raise SystemExit(f"{config.name} cannot be launched in TRL: {sentence}")
        given.append(remedy[1])
    changes = "".join(f" --set {change}" for change in given)
    return f"tokenpo launch papers/{config.name} --engine trl --processes {processes}{changes}"


def refusal(config: Config, given: list[str], processes: int) -> str | None:
    """What the TRL engine says of a paper's recipe with these changes, where it refuses it."""
    changed = Plan(load_config(find_recipe(PAPERS + config.name), overrides=given))
    try:
        require(changed)
        schedule(changed, processes, longest_prompt=config.verl["data"]["max_prompt_length"])
    except Unsupported as error:
        return str(error)
    return None


def _in_trl(recipes: list[Recipe]) -> str:
    """What TRL says of the recipes as they are, and the settings that its commands drop of every one."""
    said = dict.fromkeys(refusal(r.config, [], r.config.verl["trainer"]["n_gpus_per_node"]) for r in recipes)
    sentences = "\n".join(["```text", *(f"tokenpo: {sentence}" for sentence in said if sentence), "```"])
    return f"{sentences}\n\nTRL leaves out {_listed(['evaluate.every', *_dropped_of_all(recipes)])}."


def _left_out(recipes: list[Recipe], every: list[Recipe]) -> list[str]:
    """The settings that TRL's commands drop of these recipes and not of every one."""
    more = dict.fromkeys(key for recipe in recipes for key in _dropped(recipe))
    keys = [key for key in more if key not in _dropped_of_all(every)]
    return [f"Here TRL also leaves out {_listed(keys)}."] if keys else []


def _dropped(recipe: Recipe) -> list[str]:
    """The warm-up is in the command."""
    return [key for key in recipe.numbers if key.startswith("verl.") and not key.endswith(_ELSEWHERE)]


def _dropped_of_all(recipes: list[Recipe]) -> list[str]:
    return [key for key in _dropped(recipes[0]) if all(key in _dropped(recipe) for recipe in recipes)]


def _listed(keys: list[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _expected(recipes: list[Recipe]) -> str:
    """Memory and time on paper, one row for each set-up: recipes of one shape need the same."""
    gpu, memory = estimate_recipe.GPUS[GPU], estimate_recipe.MEMORY[GPU]
    rows: dict[str, tuple[str, ...]] = {}
    for recipe in recipes:
        shape = estimate_recipe.SHAPES[str(recipe.config.model.path)]
        load = estimate_recipe.Load.of(recipe.config)
        needs = estimate_recipe.needs(shape, load, gpu, memory)
        rows[recipe.model] = (
            recipe.model, f"{load.gpus}", f"{load.rows} x {load.response}",
            _range(needs.updating), f"{needs.held}", _range(needs.update), f"≥ {needs.sampling:.0f}",
            f"{estimate_recipe.STATE * shape.parameters / estimate_recipe.GIGA:.0f}",
        )  # fmt: skip
    head = (
        f"{GPU}s of {memory / 1e9:.0f} GB", "GPUs", "a step", "updating, GB", "sampler's cache",
        "scoring, update, s", "sampling, s", "TRL, GB",
    )  # fmt: skip
    return table(head, list(rows.values()))


def _range(ends: tuple[float, float]) -> str:
    return " to ".join(f"{end:.0f}" for end in ends)


def _first(method: str, several: bool) -> str:
    found = first_steps.load()
    command = first_steps.command(method, found[method]["options"])
    title = f"First steps of `{method}`" if several else "First steps"
    return f"{title}:\n\n```sh\n{command}\n```\n\n{first_steps.shown(method, found)}"


def _settings(recipes: list[Recipe], common: list[str]) -> str:
    meanings: dict[str, list[str]] = {}
    for recipe in recipes:
        for name, text in recipe.sources.items():
            meanings.setdefault(name, []).append(text)
    legend = "\n".join(f"- *{name}*: {linked('; '.join(dict.fromkeys(texts)))}" for name, texts in meanings.items())
    keys = [key for key in dict.fromkeys(key for r in recipes for key in r.numbers) if key not in common]
    columns = _columns(recipes)
    rows = [(f"`{key}`", *(_value(column, key) for column in columns.values()), _origin(columns, key)) for key in keys]
    return f"Set-up:\n\n{legend}\n\n{table(('setting', *columns, 'source'), rows)}"


def _columns(recipes: list[Recipe]) -> dict[str, dict[str, tuple[str, str]]]:
    """model -> its numbers: methods of one paper share them but for their own options."""
    columns: dict[str, dict[str, tuple[str, str]]] = {}
    for recipe in recipes:
        column = columns.setdefault(recipe.model, {})
        for key, number in recipe.numbers.items():
            if column.setdefault(key, number) != number:
                raise SystemExit(f"{recipe.name}: {key} is not that of the other method of its paper")
    return columns


def _common(recipes: list[Recipe]) -> list[str]:
    """Settings with one value in all recipes; the task's files are verl's."""
    return [
        key
        for key in recipes[0].numbers
        if key.startswith("task.")
        or (not key.startswith("method.") and len({r.numbers.get(key, ("",))[0] for r in recipes}) == 1)
    ]


def _shared(recipes: list[Recipe], common: list[str]) -> str:
    rows = []
    for key in common:
        if key.startswith("task."):
            continue
        kinds: dict[str, list[str]] = {}
        for recipe in recipes:
            kind = re.split("[:;]", recipe.numbers[key][1])[0]
            kinds.setdefault(kind, []).append(recipe.method)
        said = "; ".join(f"{kind}: {', '.join(dict.fromkeys(of))}" for kind, of in kinds.items())
        rows.append((f"`{key}`", code(recipes[0].numbers[key][0]), cell(said)))
    return table(("setting", "value", "source"), rows)


def _value(column: dict[str, tuple[str, str]], key: str) -> str:
    return code(column[key][0]) if key in column else "-"


def _origin(columns: dict[str, dict[str, tuple[str, str]]], key: str) -> str:
    """The source once where all models name the same, else behind each model."""
    said = {model: column[key][1] for model, column in columns.items() if key in column}
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

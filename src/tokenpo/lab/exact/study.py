"""The measures of methods in worlds, with standard errors, and the file that stores them."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from ... import core
from ...base.errors import TokenPOError
from ...base.files import fingerprint
from ...core.objective import Objective
from ...core.parts import walk
from ...methods import method
from ...page.frame import write
from ..estimate import Estimate, Number, load_json, mean_of, rounded
from . import measures, training
from .contestant import Contestant
from .model import DRIFTS, POLICIES, Network, Table
from .setting import USUAL, Setting
from .world import World

HERE = Path(__file__).parent
BASE, PERFECT = "dapo", "exact credit"  # the references, at which `captured` is 0 and 1
EXPECTED = 2  # number of runs of expected training
_SHOWING = ("__init__", "page", "table")  # modules that do not affect the numbers


@dataclass
class Cell:
    """Results of a method in a world.

    Args:
        numbers: by `POLICY/measure`, `drift/WAY`, `train/what` (expected training) and `noisy/what` (noisy training).
        useful: useful progress at the initial policy, with its replicates, for differences whose noise cancels.
        curve: mean reward after each batch of expected training.
        code: hash of the program that computed the numbers.
        setting: the axes of the setting that are not at their defaults.
    """

    numbers: dict[str, Number]
    useful: Estimate
    curve: list[float] = field(default_factory=list)
    code: str = ""
    setting: str = ""


@dataclass
class Row:
    """Results of a method by world; `objective` is the method's text."""

    label: str
    objective: str
    cells: dict[str, Cell]

    def at(self, world: World, key: str) -> Number:
        """The number `key` in a world."""
        return self.cells[world.name].numbers[key]

    def with_cells_of(self, other: Row | None) -> Row:
        """This row, with cells for further worlds from another row if that has the same objective."""
        more = other.cells if other and other.objective == self.objective else {}
        return Row(self.label, self.objective, more | self.cells)


def references() -> list[Contestant]:
    """The references: DAPO, and DAPO's loss with Q − V in place of its credit."""
    dapo = method(BASE)
    return [Contestant(BASE, dapo), Contestant(PERFECT, dapo, exact=True)]


def study(contestant: Contestant, world: World, setting: Setting = USUAL) -> Cell:
    """All measures of a method in a world, except `captured`, which needs the references."""
    network = _network(world)
    model = network if setting.network else _table(world)
    at = {name: measures.observe(contestant, model, name, setting) for name in POLICIES}
    estimates = {f"{name}/{key}": measure(x) for name, x in at.items() for key, measure in measures.MEASURES.items()}
    estimates |= {f"drift/{way}": measures.drift(contestant, model, at["init"], way, setting) for way in DRIFTS}
    numbers = {key: Number.of(x) for key, x in estimates.items()}
    cell = Cell(numbers, estimates["init/useful"], setting=str(setting))
    runs = [training.expected(contestant, model, seed, setting) for seed in range(EXPECTED)]
    numbers |= {f"train/{key}": number for key, number in _summary(world, runs).items()}
    cell.curve = runs[0].J
    size, drawn = training.tuned(contestant, network, setting)
    numbers |= {f"noisy/{key}": number for key, number in _summary(world, drawn).items()}
    numbers["noisy/area"] = Number.of(mean_of([run.area for run in drawn]))
    numbers["noisy/kl"] = Number.of(mean_of([fmean(run.kl) for run in drawn]))
    numbers["noisy/size"] = Number(size)
    return cell


# One object per world, as results are cached by model.
_table, _network = functools.lru_cache(maxsize=64)(Table), functools.lru_cache(maxsize=64)(Network)


def _summary(world: World, runs: list[training.Course]) -> dict[str, Number]:
    """Means over runs: batches to the goal, the mean reward at the end, and entropy, length and sound at the goal.

    Unless all runs reach the goal, batches is infinite and the last three are NaN.
    """
    never = (math.nan, math.inf)
    results = {"batches": [run.arrival for run in runs], "J": [run.J[-1] for run in runs]}
    for key in ("entropy", "length", *(["sound"] if world.sound else [])):
        results[key] = [run.on_arrival(key) for run in runs]
    return {
        key: Number.of(mean_of(values)) if all(map(math.isfinite, values)) else Number(never[key == "batches"])
        for key, values in results.items()
    }


def all_rows(
    contestants: Iterable[Contestant],
    worlds: Iterable[World],
    known: Mapping[str, Row] | None = None,
    fresh: Iterable[str] = (),
    setting: Setting = USUAL,
    done: Callable[[Mapping[str, Row], str, int], None] = lambda rows, label, count: None,
) -> list[Row]:
    """Studies all methods, the references first, and returns their rows followed by the other known rows.

    Args:
        known: rows by label, in the same setting; a cell of the same objective and program is reused.
        fresh: labels whose cells are not reused.
        done: called after each cell, with the rows so far, the label, and the number of worlds that it has.
    """
    studied = {c.label: c for c in [*references(), *contestants]}
    rows: dict[str, Row] = {}
    known, worlds = dict(known or {}), list(worlds)
    for label, contestant in studied.items():
        text, code, old = str(contestant.objective), program(contestant.objective), known.pop(label, None)
        row = rows[label] = Row(label, text, dict(old.cells) if old and old.objective == text else {})
        for count, world in enumerate(worlds, 1):
            cell = row.cells.get(world.name)
            if cell is None or cell.code != code or label in fresh:
                cell = row.cells[world.name] = study(contestant, world, setting)
                cell.code = code
                done(rows | known, label, count)
    for row in rows.values():
        for world in worlds:
            useful = [rows[label].cells[world.name].useful for label in (row.label, BASE, PERFECT)]
            row.cells[world.name].numbers["init/captured"] = Number.of(measures.captured(*useful))
    return [*rows.values(), *known.values()]


def require_setting(known: Mapping[str, Row], setting: Setting, path: Path) -> None:
    """Raises TokenPOError, naming the file and both settings, if known rows have another setting."""
    for cell in (cell for row in known.values() for cell in row.cells.values()):
        if cell.setting != str(setting):
            theirs, ours = (text or "the usual one" for text in (cell.setting, str(setting)))
            raise TokenPOError(f"{path} holds studies of another setting ({theirs}; asked: {ours}): give another file")


def program(objective: Objective) -> str:
    """A hash of the code that computes an objective's numbers: the core, the objective's parts, this study."""
    modules = [sys.modules.get(type(part).__module__) for part in walk(objective)]
    parts = [Path(module.__file__) for module in modules if module is not None and module.__file__]
    made_by = [HERE.parent / "estimate.py", *(path for path in HERE.glob("*.py") if path.stem not in _SHOWING)]
    return fingerprint(sorted({*Path(core.__file__).parent.rglob("*.py"), *parts, *made_by}))


def shipped(setting: Setting) -> dict[str, Row]:
    """The references' rows that the package contains, for the default setting; a test computes them again."""
    if setting != USUAL:
        return {}
    rows = load(HERE / "references.json")
    for contestant in references():
        for cell in rows[contestant.label].cells.values():
            cell.code = program(contestant.objective)
    return rows


def save(rows: Iterable[Row], path: Path) -> Path:
    """Writes all numbers as JSON, with four digits and null for non-finite ones; raises as `frame.write`."""

    lines = []
    for row in rows:
        worlds = {
            world: {
                "numbers": {key: x.pair() for key, x in cell.numbers.items()}, "useful": cell.useful.row(),
                "curve": [rounded(x, 3) for x in cell.curve], "code": cell.code, "setting": cell.setting,
            }
            for world, cell in row.cells.items()
        }  # fmt: skip
        text = json.dumps({"objective": row.objective, "worlds": worlds}, separators=(",", ":"))
        lines.append(f"{json.dumps(row.label)}: {text}")
    return write("{\n" + ",\n".join(lines) + "\n}\n", path)


def load(path: Path) -> dict[str, Row]:
    """Rows that `save` wrote, by label; refuses any other file."""

    def number(key: str, value: float | None, error: float | None) -> Number:
        never = math.inf if key.endswith("/batches") else math.nan
        return Number(never if value is None else value, never if error is None else error)

    def cell(kept: Mapping[str, Any]) -> Cell:
        numbers = {key: number(key, *pair) for key, pair in kept["numbers"].items()}
        return Cell(numbers, Estimate.of_row(kept["useful"]), kept["curve"], kept["code"], kept["setting"])

    def row(label: str, kept: Mapping[str, Any]) -> Row:
        return Row(label, kept["objective"], {world: cell(x) for world, x in kept["worlds"].items()})

    return load_json(path, "exact", lambda table: {label: row(label, x) for label, x in table.items()})

"""The first ten steps of each paper's method on the tiny model: docs/first_steps.json, and its tables for the page.

    python tools/site/first_steps.py            train what is missing, three seeds each: half a minute of one core a run
    python tools/site/first_steps.py --check    whether the file has the runs of the recipes' options; trains nothing

The method has the options of its paper's recipe; task, batch, learning rate and temperature are the quickstart's. With
one seed all methods sample the same first batch. `tools/site/docs.py` writes the tables into docs/papers_recipes.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layout import table

from tokenpo.base.files import write_whole
from tokenpo.cli.view import SilentView
from tokenpo.engines.embedded.loop import train
from tokenpo.methods import METHODS, options_of
from tokenpo.recipe.config import load_config
from tokenpo.recipe.files import PAPERS, find_recipe, shipped_recipes

NUMBERS = Path(__file__).resolve().parents[2] / "docs" / "first_steps.json"
STEPS, SEEDS = 10, (0, 1, 2)
SHOWN = (1, 2, 3, 5, 10)
# Metric, its heading, its format.
COLUMNS = (
    ("reward", "reward", ".2f"),
    ("entropy", "entropy", ".3f"),
    ("length", "length", ".1f"),
    ("clip_fraction", "clipped, ‰", ".2f"),
    ("kl", "KL moved, 1e-4", ".1f"),
    ("grad_norm", "gradient norm", ".2f"),
    ("effective_tokens", "with a gradient", ".2f"),
    ("temperature_mean", "temperature", ".3f"),
)
SCALE = {"clip_fraction": 1e3, "kl": 1e4}
Found = dict[str, dict[str, Any]]


def settings() -> dict[str, list[str]]:
    """method -> the options by which its paper's recipes differ from its defaults, as the command line takes them."""
    found: dict[str, list[str]] = {}
    for name in shipped_recipes():
        if not name.startswith(PAPERS):
            continue
        method = load_config(find_recipe(name)).method
        defaults = {option: parameter.default for option, parameter in options_of(METHODS[method.name]).items()}
        given = [f"method.{k}={_text(v)}" for k, v in method.options.items() if v != defaults[k]]
        if found.setdefault(method.name, given) != given:
            raise SystemExit(f"{name}: its options are not those of the other recipes of {method.name}")
    return dict(sorted(found.items()))


def run(method: str, given: Sequence[str], seed: int, steps: int = STEPS) -> list[dict[str, float]]:
    """The metrics of the columns, step by step."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        changes = (*_short(steps), *given, f"seed={seed}", f"output.dir={out}", "output.checkpoint_every=0")
        train(load_config(find_recipe("quickstart"), method=method, overrides=changes), SilentView())
        lines = map(json.loads, (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        return [{metric: float(f"{line[metric]:.9g}") for metric, *_ in COLUMNS} for line in lines]


def command(method: str, given: Sequence[str]) -> str:
    words = [f"--set {text}" for text in (*given, *_short(STEPS))]
    return f"tokenpo train quickstart --method {method} {' '.join(words)}"


def shown(method: str, found: Found) -> str:
    """The table of one method: mean ± standard deviation over the seeds; a column that never moves is left out."""
    runs = list(found[method]["seeds"].values())
    columns = [c for c in COLUMNS if len({step[c[0]] for run in runs for step in run}) > 1]
    rows = [(f"{at}", *(_spread([run[at - 1][m] for run in runs], m, f) for m, _, f in columns)) for at in SHOWN]
    return table(("step", *(head for _, head, _ in columns)), rows)


def load() -> Found:
    return json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}


def missing(found: Found) -> list[tuple[str, list[str], int]]:
    """Runs that the file lacks, or has of other options."""
    return [
        (method, given, seed)
        for seed in SEEDS
        for method, given in settings().items()
        if found.get(method, {}).get("options") != given or str(seed) not in found[method]["seeds"]
    ]


def save(found: Found) -> None:
    lines = [
        f'{json.dumps(method)}: {{"options": {json.dumps(row["options"])}, "seeds": {{\n'
        + ",\n".join(
            f"{json.dumps(seed)}: [\n" + ",\n".join(map(json.dumps, run)) + "]" for seed, run in row["seeds"].items()
        )
        + "}}"
        for method, row in sorted(found.items())
    ]
    write_whole(NUMBERS, "{\n" + ",\n".join(lines) + "\n}\n")


def _short(steps: int) -> tuple[str, str]:
    return f"train.steps={steps}", "evaluate.problems=0"


def _spread(values: Sequence[float], metric: str, form: str) -> str:
    scaled = [value * SCALE.get(metric, 1.0) for value in values]
    return f"{statistics.fmean(scaled):{form}} ± {statistics.stdev(scaled):{form}}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="train nothing; exit 1 when runs are missing")
    check = parser.parse_args(given).check
    found = load()
    for method, options, seed in missing(found):
        print(f"{'missing' if check else 'training'}: {method}, seed {seed}", flush=True)
        if not check:
            row = found.get(method, {})
            kept = row["seeds"] if row.get("options") == options else {}
            found[method] = {"options": options, "seeds": kept | {str(seed): run(method, options, seed)}}
            save(found)
    return int(check and bool(missing(found)))


if __name__ == "__main__":
    sys.exit(main())

"""Is learning bought with KL? The runs that law.toml registers, their numbers, and the page docs/kl_law.md.

    python studies/2026-11-24-kl-law/bases.py                                   first: the base models that are missing, and data
    python studies/2026-11-24-kl-law/law.py run --out runs/law                  make what is missing; stop and start at will
    python studies/2026-11-24-kl-law/law.py status --out runs/law               how far it is
    python studies/2026-11-24-kl-law/law.py collect --out runs/law              add the new lines of OUT/law.jsonl to law.jsonl
    python studies/2026-11-24-kl-law/law_page.py                                write the page of the looks whose runs are made

A run that ends adds a line to OUT/law.jsonl; one that is cut off leaves nothing and is made again. Runs go look by
look and block by block in the order of law.toml, within a block seed by seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from tokenpo.base.files import locked
from tokenpo.base.jsonl import Lines
from tokenpo.evidence.compare.measures import measures
from tokenpo.recipe.config import Config, load_config
from tokenpo.recipe.files import find_recipe
from tokenpo.runs.read import read_run

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from bases import model  # noqa: E402

METRICS = (
    "train-area", "accuracy", "entropy", "mean:entropy", "length", "mean:kl", "mean:clip_fraction", "mean:grad_norm",
)  # fmt: skip
COURSE = ("reward", "kl", "entropy", "kl_rate")


class Key(NamedTuple):
    """A run: `arm` is "fixed" or "held", `lr` what train.lr is."""

    task: str
    base: str
    method: str
    arm: str
    lr: float
    seed: int


def registration(file: Path = HERE / "law.toml") -> dict[str, Any]:
    """What the file says, and where it stands."""
    return tomllib.loads(file.read_text(encoding="utf-8")) | {"file": file}


def wanted(plan: Mapping[str, Any], made: Mapping[Key, Mapping[str, Any]], last: float = math.inf) -> list[Key]:
    """Every run registered for the looks up to `last`, in order, each once; those "tuned" once the tuning is made."""
    keys = [
        (look, key)
        for block in plan["block"]
        for seed in range(*block["seeds"])
        for task, base, method in itertools.product(block["tasks"], block["bases"], block["methods"])
        if (look := block.get("look", {}).get(task, 1)) <= last
        for key in of_block(plan, made, block, task, base, method, seed)
    ]
    return list(dict.fromkeys(key for _, key in sorted(keys, key=lambda pair: pair[0])))


def of_block(
    plan: Mapping[str, Any], made: Mapping[Key, Mapping[str, Any]], block: Mapping[str, Any], task: str, base: str,
    method: str, seed: int,
) -> Iterator[Key]:  # fmt: skip
    for arm, rates in block["arms"].items():
        if arm != "tuned":
            yield from (Key(task, base, method, arm, lr, seed) for lr in rates)
        elif best := tuned(plan, made, task, method):
            yield Key(task, base, best.method, "fixed", best.lr, seed)


def named(plan: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The block of this name."""
    return next(block for block in plan["block"] if block["name"] == name)


def fixed(plan: Mapping[str, Any], task: str, method: str) -> list[Key]:
    """The fixed settings of a method's tuning, clip by rate, by their first seed."""
    return [
        Key(task, "first", name, "fixed", lr, block["seeds"][0])
        for block, name in ((named(plan, "rates"), method), (named(plan, "wide"), f"{method}_wide"))
        for lr in block["arms"]["fixed"]
    ]


def tuned(plan: Mapping[str, Any], made: Mapping[Key, Mapping[str, Any]], task: str, method: str) -> Key | None:
    """Clip and rate with the highest mean area in the tuning; None before all of it is made."""
    settings = fixed(plan, task, method)
    heights = {key: height(plan, made, key) for key in settings}
    if None in heights.values():
        return None
    return max(settings, key=lambda key: heights[key] or 0.0)  # the first of equal ones


def height(plan: Mapping[str, Any], made: Mapping[Key, Mapping[str, Any]], key: Key) -> float | None:
    """Mean area of a setting over the tuning's seeds."""
    seeds = range(*named(plan, "rates")["seeds"])
    runs = [made.get(key._replace(seed=seed)) for seed in seeds]
    return statistics.fmean(run["values"]["train-area"] for run in runs) if all(runs) else None


def lines(*files: Path) -> list[str]:
    """Of all files, each line once."""
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return list(dict.fromkeys(line for text in texts for line in text.splitlines()))


def numbers(*files: Path) -> dict[Key, dict[str, Any]]:
    """The numbers that are made, by run."""
    made = {}
    for line in map(json.loads, lines(*files)):
        made[Key(*(line.pop(name) for name in Key._fields))] = line
    return made


def config_of(plan: Mapping[str, Any], key: Key, bases: Path, directory: Path) -> Config:
    """The run's recipe."""
    own = plan["file"].parent / f"{key.task}.toml"
    method = plan["method"].get(key.method, {"name": key.method})
    settings = [
        *plan["set"],
        f"model.path={model(bases, key.task, key.base)}",
        f"train.lr={key.lr}",
        f"seed={key.seed}",
    ]
    settings += [f"method.{name}={value}" for name, value in method.items() if name != "name"]
    if key.arm == "held":
        settings.append(f"train.kl_target={plan['kl_target']}")
    if own.is_file():
        settings += [f"task.options.path={bases / 'train.jsonl'}", f"task.options.test_path={bases / 'test.jsonl'}"]
        verifier = tomllib.loads(own.read_text(encoding="utf-8"))["task"]["options"]["verifier"]
        settings.append(f"task.options.verifier={own.parent / verifier}")
    recipe = own if own.is_file() else find_recipe(key.task)
    return load_config(recipe, method=method["name"], overrides=settings, out=directory)


Read = Callable[[Path], dict[str, Any]]


def make(plan: Mapping[str, Any], key: Key, bases: Path, out: Path, read: Read | None = None) -> dict[str, Any]:
    """Trains one run in a directory of its own in `out`, which is removed again; its line of numbers.

    Args:
        read: what else is kept from a run's directory, beside "values" and "course".
    """
    from tokenpo.cli.view import SilentView
    from tokenpo.engines.embedded.loop import train

    out.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=out)) / "run"
    began, config = time.process_time(), config_of(plan, key, bases, directory)
    if not train(config, SilentView()).finished:
        raise KeyboardInterrupt
    run = read_run(directory)
    values = {
        m.name: m.of(run).number for m in measures(plan.get("metrics", METRICS), 0.5, Config.model_validate(run.config))
    }
    course = {name: [_short(y) for _, y in run.series(name)] for name in plan.get("course", COURSE)}
    course |= read(directory) if read else {}
    left_out = run.total("kl_left_out")
    line = key._asdict() | {"values": {name: _short(x) for name, x in values.items()}, "course": course}
    line |= {"left_out": left_out, "cpu": round(time.process_time() - began, 1)}
    shutil.rmtree(directory.parent)
    return line


def _short(x: float | None) -> float | None:
    return None if x is None or not math.isfinite(x) else float(f"{x:.5g}")


def run(
    plan: Mapping[str, Any], out: Path, bases: Path, tasks: Sequence[str], jobs: int = 1, most: float = math.inf,
    read: Read | None = None,
) -> None:  # fmt: skip
    """Makes the missing runs of these tasks, `jobs` at a time, and adds their lines to OUT's file of this study."""
    out.mkdir(parents=True, exist_ok=True)
    (out / ".lock").touch()
    collected = plan["file"].with_suffix(".jsonl")
    file = Lines(out / collected.name)
    with (
        locked(out / ".lock", f"another run of this study is at work in {out}: wait for it, or choose another --out"),
        ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool,
    ):
        shutil.rmtree(out / "run", ignore_errors=True)  # of runs that were cut off
        at_work = {}
        while True:
            made = numbers(collected, file.path)
            print(status(plan, made), flush=True)
            for key in wanted(plan, made):
                if len(at_work) == jobs or not most:
                    break
                if key.task in tasks and key not in made and key not in at_work.values():
                    at_work[pool.submit(make, plan, key, bases.resolve(), out.resolve() / "run", read)] = key
                    most -= 1
            if not at_work:
                return
            for ended in wait(at_work, return_when=FIRST_COMPLETED).done:
                file.write(ended.result())
                file.sync()
                del at_work[ended]


def status(plan: Mapping[str, Any], made: Mapping[Key, Mapping[str, Any]]) -> str:
    """How far it is, in a line."""
    keys = wanted(plan, made)
    done = [key for key in keys if key in made]
    each = sum(made[key]["cpu"] for key in done) / max(len(done), 1)
    return f"{len(done)} of {len(keys)} runs are made; about {each * (len(keys) - len(done)) / 3600:.1f} h of one core are left."


def main(
    arguments: Sequence[str] | None = None, registered: Path = HERE / "law.toml", told: str = __doc__,
    read: Read | None = None,
) -> int:  # fmt: skip
    """The command line of a study.

    Args:
        registered: what it runs; its lines stand beside it, as .jsonl.
        told: what --help says.
        read: as of `make`.
    """
    plan, collected = registration(registered), registered.with_suffix(".jsonl")
    tasks = [*dict.fromkeys(task for block in plan["block"] for task in block["tasks"])]
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "status", "collect"))
    parser.add_argument(
        "--out", type=Path, default=Path("runs", registered.stem), help="where runs lie while they are made"
    )
    parser.add_argument("--bases", type=Path, default=HERE / "base_models", help="what bases.py made")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at a time, each on one core")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=tasks)
    parser.add_argument("--most", type=float, default=math.inf, help="stop after so many runs")
    chosen = parser.parse_args(arguments)
    made = chosen.out / collected.name
    if chosen.what == "run":
        run(plan, chosen.out, chosen.bases, chosen.tasks, chosen.jobs, chosen.most, read)
    elif chosen.what == "status":
        print(status(plan, numbers(collected, made)))
    else:
        collected.write_text("".join(line + "\n" for line in lines(collected, made)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

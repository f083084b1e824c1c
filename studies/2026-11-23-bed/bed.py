"""The bed of bed.toml: runs away from the on-policy regime, their numbers, and the verdicts in docs/bed.md.

    python studies/2026-11-23-bed/bed.py run --out runs/bed        make what is missing, --jobs at a time; stop and start at will
    python studies/2026-11-23-bed/bed.py status --out runs/bed     how far it is
    python studies/2026-11-23-bed/bed.py collect --out runs/bed    add the new lines of OUT/bed.jsonl to bed.jsonl
    python studies/2026-11-23-bed/bed.py page                      write a section of docs/bed.md from bed.jsonl
    python studies/2026-11-23-bed/bed.py page --check              exit 1 if it is not what the numbers say

A run that ends adds a line to OUT/bed.jsonl; one that is cut off leaves nothing and is made again. First every method
is tuned, then the test goes seed by seed through all tasks and methods, so that at any time all have the same seeds.
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenpo.base.files import locked
from tokenpo.base.jsonl import Lines
from tokenpo.evidence.compare.measures import measures
from tokenpo.recipe.config import Config, load_config
from tokenpo.recipe.files import find_recipe
from tokenpo.runs.read import read_run, read_trace

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tools" / "site")]
DOCS = HERE.parents[1] / "docs"

import ledger  # noqa: E402
from layout import table, write_section  # noqa: E402

UNDECIDED = "clipped of undecided"


@dataclass(frozen=True)
class Key:
    """Which run; `tuning` where it is for choosing the rate."""

    tuning: bool
    task: str
    method: str
    lr: float
    seed: int


@dataclass(frozen=True)
class Bed:
    """The registration, and the numbers of the runs that are made: by key, then by metric."""

    plan: Mapping[str, Any]
    made: Mapping[Key, Mapping[str, Any]]

    @staticmethod
    def read(plan: Path, *numbers: Path) -> Bed:
        made = {}
        for line in map(json.loads, _lines(*numbers)):
            made[Key(*(line.pop(name) for name in ("tuning", "task", "method", "lr", "seed")))] = line
        return Bed(tomllib.loads(plan.read_text(encoding="utf-8")), made)

    @property
    def tasks(self) -> list[str]:
        return [task["recipe"] for task in self.plan["task"]]

    @property
    def primary(self) -> str:
        return self.plan["metrics"][0]

    def tuning(self, task: str, method: str) -> list[Key]:
        """The runs that choose a rate."""
        of = self.plan["tuning"]
        return [Key(True, task, method, lr, seed) for seed in of["seeds"] for lr in of["rates"]]

    def heights(self, task: str, method: str) -> dict[float, float] | None:
        """The mean of the primary metric by rate; None before all of the tuning is made."""
        runs = self.tuning(task, method)
        if not all(run in self.made for run in runs):
            return None
        of = self.plan["tuning"]["rates"]
        return {
            lr: statistics.fmean(self.made[run]["values"][self.primary] for run in runs if run.lr == lr) for lr in of
        }

    def rate(self, task: str, method: str) -> float | None:
        """The tuned one: the highest mean, of equal ones the smallest rate."""
        heights = self.heights(task, method)
        return min(heights, key=lambda lr: (-heights[lr], lr)) if heights else None

    def tests(self) -> Iterator[Key | None]:
        """Every run of the test in its order; None for one whose rate is not known yet."""
        for seed in range(max(self.plan["test"]["looks"])):
            for task, method in itertools.product(self.tasks, self.plan["methods"]):
                lr = self.rate(task, method)
                yield None if lr is None else Key(False, task, method, lr, seed)

    def missing(self) -> Iterator[Key]:
        """What is still to run, in order: each key as far as it is known."""
        tuning = [key for task in self.tasks for method in self.plan["methods"] for key in self.tuning(task, method)]
        yield from (key for key in sorted(tuning, key=lambda key: key.seed) if key not in self.made)
        ended = self.ended()
        tests = (key for key in self.tests() if key is not None and (key.task, key.method) not in ended)
        yield from (key for key in tests if key not in self.made)

    def seeds(self, task: str, method: str) -> int:
        """How many test seeds, from 0 on, are made."""
        lr, n = self.rate(task, method), 0
        while lr and n < max(self.plan["test"]["looks"]) and Key(False, task, method, lr, n) in self.made:
            n += 1
        return n

    def judged(self) -> list[ledger.Judged]:
        """Every claim on every task, after the looks that both its methods have reached."""
        return ledger.judge(claims(self.plan), self.found(), looks(self.plan))

    def ended(self) -> set[tuple[str, str]]:
        """The (task, method) that are run no further: a verdict on every claim that names the method there.

        Later looks cannot take a verdict back, as p is the smallest over the looks.
        """
        judged = self.judged()
        pairs = [(item.test.task, {item.test.claim.method, item.test.claim.other}, item.decided) for item in judged]
        return {
            (task, method)
            for task in self.tasks
            for method in self.plan["methods"]
            if all(decided for of, methods, decided in pairs if of == task and method in methods)
        }

    def found(self) -> ledger.Tasks:
        """The numbers as a ledger reads them."""
        return {task["recipe"]: self._found(task["recipe"], task["threshold"]) for task in self.plan["task"]}

    def _found(self, task: str, threshold: float) -> dict[str, Any]:
        names = [*self.plan["metrics"], UNDECIDED]
        runs = {
            method: [self.made[Key(False, task, method, lr, seed)] for seed in range(self.seeds(task, method))]
            if (lr := self.rate(task, method))
            else []
            for method in self.plan["methods"]
        }
        return {
            "threshold": threshold,
            "values": {
                name: {method: [run["values"][name] for run in of] for method, of in runs.items()} for name in names
            },
            "never": {
                name: {method: [i for i, run in enumerate(of) if name in run["never"]] for method, of in runs.items()}
                for name in names
            },
        }


def _lines(*files: Path) -> list[str]:
    """Of all files, each line once."""
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return list(dict.fromkeys(line for text in texts for line in text.splitlines()))


def claims(plan: Mapping[str, Any]) -> list[ledger.Claim]:
    """Those of the registration; one about a factor has no margin."""
    margins = plan["margins"]
    return [
        ledger.Claim(**claim, margin=None if "factor" in claim else margins.get(claim["metric"]))
        for claim in plan["claim"]
    ]


def looks(plan: Mapping[str, Any]) -> ledger.Looks:
    return ledger.Looks(tuple(plan["test"]["looks"]), tuple(plan["test"]["shares"]))


def config_of(plan: Mapping[str, Any], key: Key, directory: Path) -> Config:
    """The run's recipe."""
    settings = [*plan["set"], f"train.lr={key.lr}", f"seed={key.seed}"]
    return load_config(find_recipe(key.task), method=key.method, overrides=settings, out=directory)


def make(plan: Mapping[str, Any], key: Key, out: Path) -> dict[str, Any]:
    """Trains one run in a directory of its own in `out`, which is removed again; its line of numbers."""
    from tokenpo.cli.view import SilentView
    from tokenpo.engines.embedded.loop import train

    out.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=out)) / "run"
    began, config = time.process_time(), config_of(plan, key, directory)
    if not train(config, SilentView()).finished:
        raise KeyboardInterrupt
    threshold = next(task["threshold"] for task in plan["task"] if task["recipe"] == key.task)
    line = {**vars(key), **numbers(plan, directory, threshold), "cpu": round(time.process_time() - began, 1)}
    shutil.rmtree(directory.parent)
    return line


def numbers(plan: Mapping[str, Any], directory: Path, threshold: float) -> dict[str, Any]:
    """What bed.jsonl keeps of a run: every metric, and which of them are lower bounds."""
    run = read_run(directory)
    found = {m.name: m.of(run) for m in measures(plan["metrics"], threshold, Config.model_validate(run.config))}
    values = {name: value.number for name, value in found.items()}
    values[UNDECIDED] = undecided_clipped(directory, plan["undecided"])
    short = {name: None if x is None else float(f"{x:.6g}") for name, x in values.items()}
    return {"values": short, "never": [name for name, value in found.items() if value.censored]}


def undecided_clipped(directory: Path, least: float) -> float | None:
    """Share of the traced tokens whose gradient is cut, of those with an advantage and an entropy of so many nats."""
    trace = read_trace(directory)
    cut = []
    for _, offset in trace.index:
        terms = trace.load(offset).terms
        for clipped, advantage, entropy in zip(terms["clipped"], terms["advantage"], terms["entropy"], strict=True):
            if advantage and entropy is not None and entropy >= least:
                cut.append(bool(clipped))
    return statistics.fmean(cut) if cut else None


def run(plan: Path, collected: Path, out: Path, jobs: int = 1, most: float = math.inf) -> None:
    """Makes `most` of the missing runs, or all, `jobs` at a time, and adds their lines to OUT/bed.jsonl."""
    out.mkdir(parents=True, exist_ok=True)
    (out / ".lock").touch()
    with (
        locked(out / ".lock", f"another bed is at work in {out}: wait for it, or choose another --out"),
        ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool,
    ):
        shutil.rmtree(out / "run", ignore_errors=True)  # of runs that were cut off
        lines, at_work = Lines(out / "bed.jsonl"), {}
        while True:
            bed = Bed.read(plan, collected, lines.path)
            for key in bed.missing():
                if len(at_work) == jobs or not most:
                    break
                if key not in at_work.values():
                    at_work[pool.submit(make, bed.plan, key, out / "run")] = key
                    most -= 1
            if not at_work:
                return
            for ended in wait(at_work, return_when=FIRST_COMPLETED).done:
                lines.write(ended.result())
                lines.sync()
                del at_work[ended]
            print(status(Bed.read(plan, collected, lines.path)), flush=True)


def status(bed: Bed) -> str:
    """How far it is, in a line."""
    plan, made, missing = bed.plan, bed.made, [*bed.missing()]
    pairs, of = len(bed.tasks) * len(plan["methods"]), looks(plan)
    tuning = pairs * len(plan["tuning"]["seeds"]) * len(plan["tuning"]["rates"])
    tuned, ended = sum(key.tuning for key in made), len(bed.ended())
    tests = len(made) - tuned + (sum(not key.tuning for key in missing) if tuned == tuning else pairs * max(of.seeds))
    left = sum(line["cpu"] for line in made.values()) / max(len(made), 1) * (tuning + tests - len(made)) / 3600
    return (
        f"{tuned} of {tuning} runs of the tuning and {len(made) - tuned} of {tests} of the test are made; "
        f"{ended} of {pairs} pairs of a method and a task have all their verdicts."
        + (f" About {left:.1f} h of one core are left at most." if tuning + tests > len(made) else "")
    )


def page(bed: Bed) -> str:
    """The section of docs/bed.md."""
    found, judged, shown = bed.found(), bed.judged(), [*bed.plan["metrics"], UNDECIDED]
    return TEMPLATE.format(
        status=status(bed),
        summary=ledger.summary(judged),
        claims=ledger.by_claim(judged),
        rows=ledger.rows(judged),
        families=ledger.families(judged),
        looks=", ".join(map(str, bed.plan["test"]["looks"])),
        shares=", ".join(f"{100 * share:g} %" for share in bed.plan["test"]["shares"]),
        margins=", ".join(f"{margin:g} in `{name}`" for name, margin in bed.plan["margins"].items()),
        tuning="\n\n".join(_tuning(bed, task) for task in bed.tasks),
        means="\n\n".join(ledger.means(task, of, shown) for task, of in found.items()),
        undecided=bed.plan["undecided"],
        **_weak(judged),
    )


def _weak(judged: Sequence[ledger.Judged]) -> dict[str, int]:
    """How many verdicts are about differences below their margin, or would fall with one Holm over all tests."""
    named = [x for x in judged if x.kind in ("shown", "refuted") and x.test.claim.metric == "train-area"]
    below = sum(abs(x.test.differences.mean or 0.0) < (x.test.claim.margin or 0.0) for x in named)
    adjusted = ledger.paired.holm([x.test.p for x in judged]).tolist()
    equal = ledger.paired.holm([x.test.p_equal for x in judged]).tolist()
    stands = [p <= ledger.REACHED or q <= ledger.REACHED for p, q in zip(adjusted, equal, strict=True)]
    decided = [stays for x, stays in zip(judged, stands, strict=True) if x.decided]
    return {
        "below": below, "directional": len(named), "tests": len(judged), "fallen": decided.count(False),
    }  # fmt: skip


def _tuning(bed: Bed, task: str) -> str:
    rates, rows = bed.plan["tuning"]["rates"], []
    for method in bed.plan["methods"]:
        heights, best = bed.heights(task, method) or {}, bed.rate(task, method)
        told = [f"{heights[lr]:.3f}" if lr in heights else "" for lr in rates]
        edge = "at the edge of the grid" if best in (rates[0], rates[-1]) else ""
        rows.append(
            (f"`{method}`", *(f"**{x}**" if lr == best else x for x, lr in zip(told, rates, strict=True)), edge)
        )
    return f"**{task}**\n\n{table(('method', *(f'{lr:g}' for lr in rates), ''), rows)}"


TEMPLATE = """\
None learns more than DAPO by the margin, 0.03 of mean training accuracy (`train-area`). TEPO, CISPO, HAPO and our
[`eb_cispo`](methods/eb_cispo.md) learn less than DAPO on both tasks; GSPO at its published bounds learns much less than
GRPO. GTPO and TR-GRPO are within the margin of their baselines.

{claims}

{summary}
{below} of the {directional} verdicts on `train-area` that name a winner are about differences below the margin. Verdicts
are corrected within a paper; with one correction over all {tests} tests {fallen} would not stand.

<details markdown="1"><summary>Every test with interval and p</summary>

{rows}

</details>

<details markdown="1"><summary>What was set before, and the commands</summary>

[bed.toml](../studies/2026-11-23-bed/bed.toml) sets methods, rates, seeds, claims, margins and looks. It was committed
after some twenty short runs that chose the set-up and before the first of these. `eb_cispo` was added after 105 tuning
runs, before any test run. {status}

Verdicts are sought after {looks} seeds, with {shares} of the 5 % error: all looks together err no more often than one
would. p is over the looks taken, corrected over the tests of the paper ({families}). A method is run no further on a
task once every claim that names it there has its verdict. The margins are {margins}.

```sh
python studies/2026-11-23-bed/bed.py run --out runs/bed          # every number of every run: bed.jsonl
python studies/2026-11-23-bed/bed.py collect --out runs/bed
python studies/2026-11-23-bed/bed.py page
```

</details>

<details markdown="1"><summary>Tuning: mean train-area over the tuning seeds, by learning rate; bold is what the test uses</summary>

{tuning}

</details>

<details markdown="1"><summary>Means over the test seeds that each method has</summary>

`{clipped}` is the share of the traced tokens whose gradient is cut, of those with an advantage and an entropy of at least
{undecided} nats; `mean:clip_fraction` is of all. Most tokens here copy what is given and can hardly be cut.

{means}

</details>
""".replace("{clipped}", UNDECIDED)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "status", "collect", "page"))
    parser.add_argument("--out", type=Path, default=Path("runs/bed"), help="where a run lies while it is made")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at a time, each on one core")
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args(arguments)
    plan, file, made = HERE / "bed.toml", HERE / "bed.jsonl", chosen.out / "bed.jsonl"
    if chosen.what == "run":
        run(plan, file, chosen.out, chosen.jobs)
    elif chosen.what == "status":
        print(status(Bed.read(plan, file, made)))
    elif chosen.what == "collect":
        file.write_text("".join(line + "\n" for line in _lines(file, made)), encoding="utf-8")
    else:
        return write_section(DOCS / "bed.md", "bed", page(Bed.read(plan, file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

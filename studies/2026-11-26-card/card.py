"""Is learning bought with KL on a model of 26 million parameters? The runs that card.toml registers, on one GPU.

    python3 -u studies/2026-11-26-card/card.py run --device cuda --out runs/card --minutes 6 --jobs 10
    python studies/2026-11-26-card/card.py run --device cpu --small --out /tmp/card      everything in small, on a processor
    python studies/2026-11-26-card/card.py status --out runs/card                        what there is
    python studies/2026-11-26-card/card.py collect --out runs/card                       add OUT's lines to card.jsonl, with the base model's numbers

With --plan longer, clips or habits, the runs of longer.toml, clips.toml or habits.toml, which say what differs from
card.toml; their lines are in longer.jsonl, clips.jsonl and habits.jsonl. habits has a base model of its own, so it needs
another OUT.

`run` makes the base model (OUT/base), the pilot (OUT/pilot.json) and then the runs, seed after seed, each as far as it
is not there, and ends within --minutes, the base model's time included. A run that ends adds a line to OUT/card.jsonl.
A seed is begun only if there seems to be time for all of it; with more minutes a later call goes on.

Every process has its own context on the device, loads the base model once and makes many runs: small steps are bound by
their launches, which the runs of several processes hide. Nothing of a run but its line is kept.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

import base  # noqa: E402

Job = tuple[str, str, int]  # method, arm, seed
COURSE = ("accuracy", "kl", "kl_rate", "entropy", "length", "clip_fraction", "grad_norm")


def registration(small: bool = False, name: str = "card") -> dict[str, Any]:
    """What card.toml says, and what differs from it in the file of that name and in small."""
    plan = tomllib.loads((HERE / "card.toml").read_text(encoding="utf-8")) | {"name": name}
    tiny = plan.pop("small")
    more = [] if name == "card" else [tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))]
    for key, change in (pair for changes in (*more, *([tiny] if small else [])) for pair in changes.items()):
        plan[key] = {**plan.get(key, {}), **change} if isinstance(change, dict) else change
    return plan


def of_seed(plan: Mapping[str, Any], seed: int) -> list[Job]:
    """The runs of a seed, in order."""
    return [
        (method, block["arm"], seed)
        for block in plan["runs"]
        for method in block["methods"]
        if method in plan["methods"]
    ]


def rate_in_words(multiple: float) -> str:
    """
    >>> rate_in_words(1.0), rate_in_words(0.125)
    ('r', '0.125 r')
    """
    return "r" if multiple == 1 else f"{multiple:g} r"


def in_words(plan: Mapping[str, Any], arm: str) -> str:
    """What an arm is."""
    of_arm = plan["arm"][arm]
    if "lr" in of_arm:
        return f"fixed at {rate_in_words(of_arm['lr'])}"
    own = f" at {of_arm['kl_target']:g}" if "kl_target" in of_arm else ""
    return f"KL held{own}, first rate {rate_in_words(of_arm['first'])}"


def lines(*files: Path) -> list[dict[str, Any]]:
    """Of all files, each line once."""
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return [json.loads(line) for line in dict.fromkeys(line for text in texts for line in text.splitlines())]


def job_of(line: Mapping[str, Any]) -> Job:
    return line["method"], line["arm"], line["seed"]


def recipe(plan: Mapping[str, Any], job: Job, rate: float, out: Path, device: str) -> dict[str, Any]:
    """The tables of a run's recipe; its arm "pilot" has `rate` itself as the rate of its first batch."""
    method, arm, seed = job
    of_arm = {"first": 1.0} if arm == "pilot" else plan["arm"][arm]
    if "lr" in of_arm:
        rates = {"lr": rate * of_arm["lr"]}
    else:
        rates = {"lr": 8 * rate * of_arm["first"], "kl_target": of_arm.get("kl_target", plan["kl_target"])}
    files = {"path": str(out / "train.jsonl"), "test_path": str(out / "test.jsonl")}
    verifier = {"verifier": f"{HERE / 'mixture.py'}:reward", "reward_seconds": 0}
    return {
        "name": "card",
        "seed": seed,
        "model": {"path": str(out / "base"), "device": device},
        "task": {"name": "files", "options": files | verifier},
        "method": method_of(plan, method),
        "rollout": plan["rollout"],
        "train": plan["train"] | rates,
        "evaluate": {"problems": 0},
        "output": {"checkpoint_every": 0, "samples": 0, "trace_every": 0},
    }


def method_of(plan: Mapping[str, Any], method: str) -> dict[str, Any]:
    """What the name stands for in this plan; a file is one of this folder."""
    found = plan.get("method", {}).get(method, {"name": method})
    return found | {"name": str(HERE / found["name"])} if ".py:" in found["name"] else found


class _Record:
    """Keeps the metrics of a run's steps, in the place of a run directory."""

    path = Path()

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.samples = self.trace = self

    def log(self, metrics: Mapping[str, float]) -> None:
        self.steps.append(dict(metrics))

    def write(self, record: Mapping[str, Any]) -> None:
        pass


class _Silent:
    """A view that shows only what goes wrong."""

    def start(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def step(self, *_: object) -> None: ...

    def stop(self) -> None: ...


_held: dict[str, Any] = {}  # by this process: the base model and its first weights


def held_model(plan: Any, graphs: bool) -> Any:
    """The base model on its device as it was made; loaded once in a process."""
    import torch

    torch.set_num_threads(1)
    if "lm" not in _held:
        _held["lm"] = base.opened(plan.load_model(), graphs)
        _held["start"] = [x.detach().clone() for x in _held["lm"].model.parameters()]
    with torch.no_grad():
        for parameter, start in zip(_held["lm"].model.parameters(), _held["start"], strict=True):
            parameter.copy_(start)
            parameter.grad = None
    return _held["lm"]


def make(settings: Mapping[str, Any], plan: Mapping[str, Any], job: Job, graphs: bool) -> dict[str, Any]:
    """Trains one run in this process; its line of numbers.

    Args:
        graphs: sample by CUDA graphs, where there are any.
    """
    from tokenpo.engines.embedded.loop import Engine, Local
    from tokenpo.recipe.config import parse_config
    from tokenpo.recipe.objective import require_here
    from tokenpo.recipe.plan import Plan
    from tokenpo.runs.checkpoint import Progress
    from tokenpo.runs.loop import Loop

    whole = Plan(parse_config(settings, "card.toml"))
    require_here(whole.objective)
    lm, record, began = held_model(whole, graphs), _Record(), time.monotonic()
    local = Local(Engine(whole, lm, whole.make_task(), None))
    try:
        loop = Loop(local, whole, record, _Silent(), Progress())  # pyright: ignore[reportArgumentType]
        for _ in range(whole.config.train.steps):
            loop.step()
    finally:
        local.close()
    return line_of(plan, job, whole.config.train.lr, record.steps) | {"seconds": round(time.monotonic() - began, 2)}


def line_of(plan: Mapping[str, Any], job: Job, lr: float, steps: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """What card.jsonl keeps of a run: `values`, means over its batches, and the course of each over them."""
    course = {name: [_short(step.get(name, math.nan)) for step in steps] for name in COURSE}
    values = {"train-area": _mean(course["accuracy"]), "last": _mean(course["accuracy"][-3:])}
    values |= {f"mean:{name}": _mean(course[name]) for name in ("kl", "entropy", "length", "clip_fraction")}
    left_out = sum(step.get("kl_left_out", 0) for step in steps)
    front = dict(zip(("method", "arm", "seed"), job, strict=True)) | {"lr": _short(lr)}
    return front | {"values": values, "course": course, "left_out": left_out}


def _short(x: float) -> float | None:
    return float(f"{x:.5g}") if math.isfinite(x) else None


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [x for x in numbers if x is not None]
    return _short(statistics.fmean(known)) if known else None


def rate_of(plan: Mapping[str, Any], pilots: Sequence[Mapping[str, Any]]) -> float:
    """r of card.toml: the rate at which DAPO's KL is on target."""
    found = []
    for pilot in pilots:
        rates = [pilot["lr"] * x for x in pilot["course"]["kl_rate"][-plan["pilot"]["last"] :] if x]
        found.append(math.exp(statistics.fmean(map(math.log, rates))))
    return float(f"{statistics.median(found):.2g}")


class Field:
    """Worker processes, and the time that they have.

    Args:
        until: when the last run has to be over, on the clock of `time.monotonic`.
    """

    def __init__(
        self, plan: Mapping[str, Any], pool: Pool, jobs: int, out: Path, device: str, until: float, graphs: bool
    ) -> None:
        self.plan, self.pool, self.jobs, self.out, self.device = plan, pool, jobs, out, device
        self.until, self.graphs = until, graphs
        self.at_work: dict[Job, Any] = {}
        self.failed: list[Job] = []

    def submit(self, job: Job, rate: float) -> None:
        settings = recipe(self.plan, job, rate, self.out, self.device)
        self.at_work[job] = self.pool.apply_async(make, (settings, self.plan, job, self.graphs))

    def ended(self) -> Iterator[dict[str, Any]]:
        """The lines of the runs that have ended since."""
        for job in [job for job, result in self.at_work.items() if result.ready()]:
            try:
                yield self.at_work.pop(job).get()
            except Exception as error:  # one run that fails does not end the others
                self.failed.append(job)
                print(f"{job} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def pilot(self) -> float:
        """r, found once and kept in OUT/pilot.json.

        Raises:
            RuntimeError: a pilot run failed, or the time is over.
        """
        file, wanted = self.out / "pilot.json", self.plan["pilot"]
        if file.is_file():
            return json.loads(file.read_text(encoding="utf-8"))["rate"]
        for seed in range(*wanted["seeds"]):
            self.submit((wanted["method"], "pilot", seed), wanted["first"])
        made, until = [], min(self.until, time.monotonic() + wanted["seconds"])
        while self.at_work and time.monotonic() < until:
            made += self.ended()
            time.sleep(0.02)
        if self.failed or self.at_work:
            raise RuntimeError(f"the pilot: {self.failed} failed, {[*self.at_work]} took too long")
        rate = rate_of(self.plan, made)
        file.write_text(json.dumps({"rate": rate, "runs": made}) + "\n", encoding="utf-8")
        return rate

    def run(self, rate: float, made: set[Job]) -> None:
        """Makes the runs that are not `made`, and adds the line of each to OUT's file of this plan."""
        began, ready, seconds = time.monotonic(), 0, []
        waiting = self._in_order(made, lambda left: self._fits(left, seconds))
        with (self.out / f"{self.plan['name']}.jsonl").open("a", encoding="utf-8") as file:
            while True:
                for line in self.ended():
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    ready += 1
                    seconds.append(line["seconds"])
                    print(_told(line, time.monotonic() - began, ready), flush=True)
                while len(self.at_work) < self.jobs and (job := next(waiting, None)) is not None:
                    self.submit(job, rate)
                if not self.at_work or time.monotonic() > self.until:
                    return
                time.sleep(0.02)

    def _in_order(self, made: set[Job], fits: Any) -> Iterator[Job]:
        for seed in range(*self.plan["seeds"]):
            left = [job for job in of_seed(self.plan, seed) if job not in made]
            if left and not fits(len(left)):
                return
            yield from left

    def _fits(self, left: int, seconds: Sequence[float]) -> bool:
        """Whether so many runs more can be made, if they take as long as those that ended, whose `seconds` these are."""
        now = time.monotonic()
        if not seconds:
            return now < self.until
        # The last of them ends alone, and those at work are half done.
        needed = statistics.fmean(seconds) / self.jobs * (left + len(self.at_work) / 2) + seconds[-1] / 2
        return now + needed < self.until


def _told(line: Mapping[str, Any], elapsed: float, ready: int) -> str:
    method, arm, seed = job_of(line)
    values = line["values"]
    number = f"area {values['train-area']}, KL {values['mean:kl']}"
    return f"{elapsed:6.1f} s, run {ready}: {method} {arm} seed {seed}: {number}, {line['seconds']} s"


def prepared(out: Path) -> Path:
    """The directory, absolute. Processes of one thread each, as there are many."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    return out


def make_base(out: Path, device: str, jobs: int, small: bool) -> dict[str, Any]:
    """The base model alone; raises as `base.make`."""
    out = prepared(out)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return base.make(out, registration(small), device, pool, jobs)


def run(
    out: Path, device: str, minutes: float, jobs: int, small: bool, graphs: bool = True, name: str = "card"
) -> dict[str, Any]:
    """Base, pilot and runs, as far as the time allows; what was made, in numbers.

    Raises:
        RuntimeError: there is no base model, or no pilot.
    """
    began, plan = time.monotonic(), registration(small, name)
    until, out = began + 60 * minutes, prepared(out)
    before = lines(out / f"{name}.jsonl")
    for used in (True, False) if graphs else (False,):
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:  # at the end of the block its processes end
            model = base.make(out, plan, device, pool, jobs)
            based, field = time.monotonic() - began, Field(plan, pool, jobs, out, device, until, used)
            try:
                rate = field.pilot()
            except RuntimeError as error:
                if not used:
                    raise
                print(f"{error}; once more, without CUDA graphs, in new processes", file=sys.stderr, flush=True)
                continue
            piloted = time.monotonic() - began
            field.run(rate, {job_of(line) for line in before})
            break
    made = lines(out / f"{name}.jsonl")
    return {
        "runs": len(made) - len(before),
        "runs_in_all": len(made),
        "complete_seeds": len(complete(plan, made)),
        "failed": len(field.failed),
        "cut_off": len(field.at_work),
        "graphs": float(used),
        "rate": rate,
        "base_accuracy": model["accuracy"],
        "base_seconds": round(based, 1),
        "pilot_seconds": round(piloted - based, 1),
        "seconds": round(time.monotonic() - began, 1),
    }


def complete(plan: Mapping[str, Any], made: Sequence[Mapping[str, Any]]) -> list[int]:
    """The first seeds, in order, of which every run is there."""
    there, found = {job_of(line) for line in made}, []
    for seed in range(*plan["seeds"]):
        if not there.issuperset(of_seed(plan, seed)):
            break
        found.append(seed)
    return found


def collect(out: Path, name: str = "card") -> None:
    """Adds OUT's lines to card.jsonl (or NAME.jsonl), and writes beside it what is known of the base model and the pilot.

    Raises:
        SystemExit: what was collected before is of another base model.
    """
    file, beside = HERE / f"{name}.jsonl", HERE / registration(name=name)["of_base"]
    known = {part: json.loads((out / f"{part}.json").read_text(encoding="utf-8")) for part in ("base", "pilot")}
    if beside.is_file() and json.loads(beside.read_text(encoding="utf-8")) != known:
        raise SystemExit(f"{file} is of another base model than {out}: runs of two can't be paired")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines(file, out / file.name)), encoding="utf-8")
    beside.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "status", "collect"))
    parser.add_argument("--out", type=Path, default=Path("runs/card"))
    parser.add_argument("--plan", choices=("card", "longer", "clips", "habits"), default="card")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=5.0, help="for everything; it ends before")
    parser.add_argument("--jobs", type=int, default=10, help="runs at a time, each in a process of its own")
    parser.add_argument("--plain", action="store_true", help="sample without CUDA graphs")
    parser.add_argument("--small", action="store_true", help="tiny models and few runs: whether everything works")
    chosen = parser.parse_args(arguments)
    if chosen.what == "run":
        jobs = 1 if chosen.small else chosen.jobs
        made = run(chosen.out, chosen.device, chosen.minutes, jobs, chosen.small, not chosen.plain, chosen.plan)
        print(json.dumps(made, indent=1))
    elif chosen.what == "status":
        made = lines(HERE / f"{chosen.plan}.jsonl", chosen.out / f"{chosen.plan}.jsonl")
        print(f"{len(made)} runs, {len(complete(registration(name=chosen.plan), made))} seeds are complete")
    else:
        collect(chosen.out, chosen.plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The second part of the study: a rate for each method, a second task, the KL held, the size of a group.

python studies/real-model/second.py run --seconds 6000     # goes on where it stopped, as study.py does
"""

import statistics

from study import METHODS, SEEDS, SMALL, Job, done, main

RATES = (1.5e-5, 3e-5, 6e-5)
FIRST = 3e-5  # the rate of all methods in the first part
TUNING = (101, 102)
SORTED = ("dapo", "grpo", "tepo", "gtpo", "tr_grpo", "hapo")
SORTING = {**SMALL, "rollout.max_new_tokens": 20}


def tuning(name: str, seed: int, rate: float) -> Job:
    method, options = METHODS[name]
    return Job(f"tune {name} {seed} at {rate:g}", method, seed, options, {**SMALL, "train.lr": rate})


def run(name: str, seed: int, rate: float) -> Job:
    """A run of the comparison; at the first part's rate it is that part's run."""
    method, options = METHODS[name]
    label = f"{name} {seed}" if rate == FIRST else f"{name} {seed} at {rate:g}"
    return Job(label, method, seed, options, {**SMALL, "train.lr": rate})


def sorting(name: str, seed: int, rate: float, label: str = "") -> Job:
    settings = {**SORTING, "train.lr": rate}
    return Job(f"sort {name} {seed}{label}", name, seed, {}, settings, task="sorting")


def side(name: str, seed: int, **settings: object) -> Job:
    rest = {k.replace("__", "."): v for k, v in settings.items()}
    return Job(f"{name} {seed}", "dapo", seed, {}, {**SMALL, "train.lr": FIRST, **rest})


def mean(made: dict[str, dict], jobs: list[Job]) -> float | None:
    """Mean training accuracy of runs; None if one is missing."""
    if any(job.name not in made for job in jobs):
        return None
    return statistics.fmean(y for job in jobs for y in made[job.name]["curve"]["accuracy"])


def best(made: dict[str, dict], runs_at: dict[float, list[Job]]) -> float | None:
    """The rate whose runs have the highest mean; None before all have run."""
    means = {rate: mean(made, jobs) for rate, jobs in runs_at.items()}
    return None if None in means.values() else max(means, key=means.get)


def halves(made: dict[str, dict], name: str) -> tuple[list[Job], float | None]:
    """The tuning runs of a method that are known, and its rate: the best of three, then of two by a second seed."""
    first = {rate: [tuning(name, TUNING[0], rate)] for rate in RATES}
    known = [job for jobs in first.values() for job in jobs]
    if best(made, first) is None:
        return known, None
    two = sorted(RATES, key=lambda rate: -mean(made, first[rate]))[:2]
    both = {rate: [*first[rate], tuning(name, TUNING[1], rate)] for rate in two}
    return [*known, *(jobs[1] for jobs in both.values())], best(made, both)


def jobs() -> list[Job]:
    made = {x["name"]: x for x in done()}
    tuned = {name: halves(made, name) for name in METHODS}
    held = [side("kl held", seed, train__kl_target=0.012) for seed in SEEDS]
    groups = [
        side(f"group of {size}", seed, rollout__group_size=size, rollout__prompts=64 // size)
        for seed in SEEDS[:3]
        for size in (2, 4, 16)
    ]
    by_rate = {rate: [sorting("dapo", seed, rate, f" at {rate:g}") for seed in TUNING] for rate in RATES}
    sort_rate = best(made, by_rate)
    runs = [job for known, _ in tuned.values() for job in known]
    runs.sort(key=lambda job: job.seed)
    if all(rate is not None for _, rate in tuned.values()):
        runs += [run(name, seed, rate) for seed in SEEDS for name, (_, rate) in tuned.items()]
    runs += [job for jobs in by_rate.values() for job in jobs]
    if sort_rate is not None:
        runs += [sorting(name, seed, sort_rate) for seed in SEEDS[:8] for name in SORTED]
    taught = Job("distilled 1", "opd", 1, {}, {**SMALL, "train.lr": FIRST, "teacher.path": "runs/smollm2-dapo-seed0"})
    return [*runs, *held, taught, side("lora 3e-4", 1, model__lora__rank=16, train__lr=3e-4), *groups]


if __name__ == "__main__":
    main(jobs, __doc__)

"""The fifth part of the study: DAPO with one, two and four updates a batch.

python studies/real-model/fifth.py run --seconds 6000     # goes on where it stopped, as study.py does
"""

import fourth
from second import FIRST, TUNING, best, side
from study import Job, done, main

TRIED = {1: (3e-5, 6e-5), 4: (1.5e-5, 3e-5)}  # updates a batch -> rates


def run(updates: int, seed: int, rate: float) -> Job:
    """Two updates at the first part's rate are the fourth part's groups of 8."""
    if (updates, rate) == (2, FIRST):
        return fourth.run(8, seed)
    return side(f"updates {updates} at {rate:g}", seed, train__minibatches=updates, train__lr=rate)


def rate(made: dict[str, dict], updates: int) -> float | None:
    """The rate of the highest accuracy in training over two seeds; None before they have run."""
    return best(made, {x: [run(updates, seed, x) for seed in TUNING] for x in TRIED[updates]})


def jobs() -> list[Job]:
    made = {x["name"]: x for x in done()}
    tuning = [run(updates, seed, x) for seed in TUNING for updates, tried in TRIED.items() for x in tried]
    chosen = {updates: rate(made, updates) for updates in TRIED}
    if None in chosen.values():
        return tuning
    return [*tuning, *(run(updates, seed, x) for seed in fourth.SEEDS for updates, x in chosen.items())]


if __name__ == "__main__":
    main(jobs, __doc__)

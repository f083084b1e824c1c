"""The fourth part of the study: DAPO with groups of 2, 4 and 8 responses, 64 a batch, on new seeds.

python studies/real-model/fourth.py run --seconds 6000     # goes on where it stopped, as study.py does
"""

from second import side
from study import Job, main

GROUPS = (8, 4, 2)
SEEDS = range(31, 47)


def run(size: int, seed: int) -> Job:
    return side(f"groups of {size}", seed, rollout__group_size=size, rollout__prompts=64 // size)


def jobs() -> list[Job]:
    return [run(size, seed) for seed in SEEDS for size in GROUPS]


if __name__ == "__main__":
    main(jobs, __doc__)

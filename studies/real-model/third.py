"""The third part of the study: GTPO and DAPO at two equal rates, on new seeds.

python studies/real-model/third.py run --seconds 6000     # goes on where it stopped, as study.py does
"""

from second import run
from study import Job, main

RATES = (1.5e-5, 3e-5)
SEEDS = range(11, 25)


def jobs() -> list[Job]:
    return [run(name, seed, rate) for seed in SEEDS for rate in RATES for name in ("dapo", "gtpo")]


if __name__ == "__main__":
    main(jobs, __doc__)

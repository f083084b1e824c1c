"""What happens in 200 batches, and who exploits a verifier first? The runs that long.toml registers.

    python studies/2026-11-27-long-runs/long.py run --out runs/long --jobs 2     make what is missing; stop and start at will
    python studies/2026-11-27-long-runs/long.py status --out runs/long           how far it is
    python studies/2026-11-27-long-runs/long.py pilot                            DAPO with seed 1000, which no test uses; prints its course
    python studies/2026-11-27-long-runs/long.py collect --out runs/long          add the new lines to long.jsonl

It needs the base models of 2026-11-24-kl-law/bases.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "2026-11-24-kl-law")]

import claimed  # noqa: E402
import law  # noqa: E402


def pilot() -> None:
    """Prints accuracy and `kl_rate` of every batch; needs the base models."""
    plan = law.registration(HERE / "long.toml")
    first = law.wanted(plan, {})[0]._replace(seed=1000)
    course = law.make(plan, first, law.HERE / "base_models", Path("runs/pilot").resolve(), claimed.by_batch)["course"]
    for number, (accuracy, rate) in enumerate(zip(course["accuracy"], course["kl_rate"], strict=True), start=1):
        print(number, accuracy, rate)


if __name__ == "__main__":
    if sys.argv[1:] == ["pilot"]:
        sys.exit(pilot())
    sys.exit(law.main(registered=HERE / "long.toml", told=__doc__, read=claimed.by_batch))

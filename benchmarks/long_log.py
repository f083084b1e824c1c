"""What `tokenpo report` takes for a run of many steps: seconds of the processor and memory. --lines 1000000

Writes a run directory whose metrics.jsonl has lines like the trainer's, 30 numbers each, an evaluation every 1,000
steps, and draws it in a process of its own.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = [
    "reward", "reward_std", "accuracy", "entropy", "entropy_q10", "entropy_q50", "entropy_q90", "length", "length_min",
    "length_max", "truncated", "equal_reward_groups", "discarded_groups", "temperature_mean", "zero_advantage_groups",
    "ratio_mean", "ratio_min", "ratio_max", "clip_fraction", "clip_low_fraction", "clip_high_fraction", "kl",
    "effective_tokens", "loss", "grad_norm", "lr", "skipped_updates", "seconds_update", "seconds_rollout",
    "seconds_other",
]  # fmt: skip
HELD_OUT = ["eval/accuracy", "eval/low", "eval/high"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lines", type=int, default=1_000_000)
    lines = parser.parse_args().lines
    draw = random.Random(0).random
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "metrics.jsonl"
        with log.open("w", encoding="utf-8") as file:
            for step in range(1, lines + 1):
                names = NAMES + HELD_OUT if step % 1000 == 0 else NAMES
                file.write(json.dumps({"step": step, **{name: draw() for name in names}}) + "\n")
        subprocess.run([sys.executable, "-m", "tokenpo", "report", directory], check=True, stdout=subprocess.DEVNULL)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        page = Path(directory) / "report.html"
        print(
            f"{lines:,} lines, {log.stat().st_size / 2**20:.0f} MiB: {used.ru_utime + used.ru_stime:.1f} s of the "
            f"processor, {used.ru_maxrss / 1024:.0f} MiB at most, a page of {page.stat().st_size / 1024:.0f} KiB "
            f"(load {os.getloadavg()[0]:.1f})"
        )


if __name__ == "__main__":
    main()

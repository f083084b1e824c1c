"""A long run in one process: does memory grow, do files stay open, does it slow down? --minutes 120

Trains the tiny model on dial_sum with the recipe's own loop, checkpoints, traces and evaluations included, and notes
after every step the resident memory, the open files and the seconds of the step. The learning rate is 0: a model that
learns writes longer answers, which would pass for a drift of speed. Linux only (/proc).

Printed: least-squares slope of memory after the first tenth, files open in the first and the last step, and the median
seconds of a step in the first and the last third.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path


def resident() -> float:
    """MiB of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--method", default="hapo")
    parser.add_argument("--rise", type=float, help="fail above so many MiB an hour")
    options = parser.parse_args()
    from tokenpo.train.config import parse_config
    from tokenpo.train.loop import train
    from tokenpo.train.view import SilentView

    began = time.monotonic()
    rows: list[tuple[float, float, int, float]] = []

    class Watch(SilentView):
        def __init__(self) -> None:
            self.last = time.monotonic()

        def step(self, metrics, total) -> None:
            now = time.monotonic()
            spent = now - self.last - metrics.get("seconds_evaluation", 0.0)
            rows.append((now - began, resident(), len(list(Path("/proc/self/fd").iterdir())), spent))
            self.last = now
            if now - began > 60 * options.minutes:
                os.kill(os.getpid(), signal.SIGINT)

    with tempfile.TemporaryDirectory() as folder:
        config = parse_config(
            {
                "threads": 1,
                "method": {"name": options.method},
                "rollout": {"prompts": 4, "group_size": 4, "max_new_tokens": 32},
                "train": {"steps": 10**9, "lr": 0.0, "minibatches": 2},
                "evaluate": {"problems": 8, "samples": 0, "every": 50},
                "output": {"dir": str(Path(folder, "run")), "checkpoint_every": 20, "trace_every": 10},
            },
            "benchmark",
        )
        outcome = train(config, Watch())
    tenth, third = rows[len(rows) // 10 :], max(1, len(rows) // 3)
    hours = [row[0] / 3600 for row in tenth]
    slope = statistics.linear_regression(hours, [row[1] for row in tenth]).slope
    first, last = (statistics.median(row[3] for row in part) for part in (rows[:third], rows[-third:]))
    print(
        f"{outcome.steps} steps in {rows[-1][0] / 60:.1f} min: memory {tenth[0][1]:.0f} -> {rows[-1][1]:.0f} MiB "
        f"({slope:+.1f} MiB an hour), files {rows[0][2]} -> {rows[-1][2]}, median step {first:.3f} -> {last:.3f} s "
        f"({100 * (last / first - 1):+.0f} %)"
    )
    if options.rise is not None and slope > options.rise:
        raise SystemExit(f"memory rises by {slope:.1f} MiB an hour")


if __name__ == "__main__":
    main()

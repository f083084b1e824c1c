"""A long run in one process: does memory grow, do files stay open, does it slow down? --minutes 120

Trains the tiny model on dial_sum with the recipe's own loop, checkpoints, traces and evaluations included, and notes
after every step the resident memory, the open files and the seconds of the step, on the clock and of the processor:
what else the machine does slows the first and hardly the second. The learning rate is 0: a model that learns writes
longer answers, which would pass for a drift of speed. Linux only (/proc).

Printed: least-squares slope of memory after the first tenth, files open in the first and the last step, and the median
seconds of a step in the first and the last third.
"""

import argparse
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """After one step: seconds since the start, MiB, open files, and the step's seconds on the clock and in use."""

    at: float
    memory: float
    files: int
    wall: float
    processor: float


def resident() -> float:
    """MiB of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--method", default="hapo")
    parser.add_argument("--rise", type=float, help="fail above so many MiB an hour")
    options = parser.parse_args()
    from tokenpo.train.recipe.config import parse_config
    from tokenpo.train.run.loop import train
    from tokenpo.train.run.step import View

    began = time.monotonic()
    rows: list[Row] = []

    class Watch(View):
        def __init__(self) -> None:
            self.last, self.worked = time.monotonic(), time.process_time()

        def step(self, metrics, total) -> None:
            now, worked = time.monotonic(), time.process_time()
            spent = now - self.last - metrics.get("seconds_evaluation", 0.0)
            files = len(list(Path("/proc/self/fd").iterdir()))
            rows.append(Row(now - began, resident(), files, spent, worked - self.worked))
            self.last, self.worked = now, worked
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
        train(config, Watch())
    report(rows, options.rise)


def report(rows: list[Row], rise: float | None) -> None:
    tenth, third = rows[len(rows) // 10 :], max(1, len(rows) // 3)
    slope = statistics.linear_regression([row.at / 3600 for row in tenth], [row.memory for row in tenth]).slope
    print(
        f"{len(rows)} steps in {rows[-1].at / 60:.1f} min: memory {tenth[0].memory:.0f} -> {rows[-1].memory:.0f} MiB "
        f"({slope:+.1f} MiB an hour after the first tenth), files {rows[0].files} -> {rows[-1].files}"
    )
    for name in ("wall", "processor"):
        first, last = (statistics.median(getattr(row, name) for row in part) for part in (rows[:third], rows[-third:]))
        print(f"median step, {name}: {first:.4f} -> {last:.4f} s ({100 * (last / first - 1):+.1f} %)")
    if rise is not None and slope > rise:
        raise SystemExit(f"memory rises by {slope:.1f} MiB an hour")


if __name__ == "__main__":
    main()

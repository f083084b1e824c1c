"""What `import tokenpo` costs beyond `import torch`, in fresh processes that take turns.

python benchmarks/import_time.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys


def seconds(module: str) -> float:
    """CPU time of a process that imports one module."""
    # As installed: byte code is kept, whatever the shell that runs this says.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env={**env, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    seen: dict[str, list[float]] = {"torch": [], "tokenpo": []}
    for module in seen:
        seconds(module)  # byte code and page cache
    for _ in range(rounds):
        for module, times in seen.items():
            times.append(seconds(module))
    medians = {module: statistics.median(times) for module, times in seen.items()}
    paired = statistics.median(b / a for a, b in zip(*seen.values(), strict=True))
    print(
        f"import torch {medians['torch']:.2f} s, import tokenpo {medians['tokenpo']:.2f} s of CPU time, {rounds} rounds"
    )
    print(f"ratio of medians {medians['tokenpo'] / medians['torch']:.3f}, median of paired ratios {paired:.3f}")


if __name__ == "__main__":
    main()

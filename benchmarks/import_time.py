"""What `import tokenpo` with everything in it costs beyond `import torch`, in fresh processes that take turns.

The package loads its names on first use, so the line that is timed uses one of each layer.

python benchmarks/import_time.py [--rounds 9]
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys

LINES = {
    "torch": "import torch",
    "tokenpo": "import tokenpo; tokenpo.method('hapo'), tokenpo.Rollouts, tokenpo.check_method",
}


def seconds(line: str) -> float:
    """CPU time of a process that runs one line."""
    # As installed: byte code is kept, whatever the shell that runs this says.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", line], check=True, env={**env, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    seen: dict[str, list[float]] = {module: [] for module in LINES}
    for line in LINES.values():
        seconds(line)  # byte code and page cache
    for _ in range(rounds):
        for module, times in seen.items():
            times.append(seconds(LINES[module]))
    medians = {module: statistics.median(times) for module, times in seen.items()}
    paired = statistics.median(b / a for a, b in zip(*seen.values(), strict=True))
    print(f"torch {medians['torch']:.2f} s, tokenpo {medians['tokenpo']:.2f} s of CPU time, {rounds} rounds")
    print(f"ratio of medians {medians['tokenpo'] / medians['torch']:.3f}, median of paired ratios {paired:.3f}")


if __name__ == "__main__":
    main()

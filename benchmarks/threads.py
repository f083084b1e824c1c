"""Which bytes of a run depend on the number of CPU threads? python benchmarks/threads.py

The same short recipe with one thread, with one again, and with two. Printed is, for each file that a run leaves,
whether its bytes are those of the first run (seconds taken out of the metrics), and for the weights the largest
difference. The second run must agree in all of them, or the exit code is 1; of the third torch promises nothing.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

LOGS = ("metrics.jsonl", "samples.jsonl", "trace.jsonl", "model/model.safetensors")


def ran(out: Path, threads: int, method: str, steps: int) -> dict[str, bytes]:
    """What a run leaves."""
    from tokenpo.train.recipe.config import parse_config
    from tokenpo.train.run.loop import train
    from tokenpo.train.run.step import View

    config = parse_config(
        {
            "threads": threads,
            "model": {"device": "cpu"},
            "method": {"name": method},
            "rollout": {"prompts": 4, "group_size": 4, "max_new_tokens": 64},
            "train": {"steps": steps, "minibatches": 2},
            "evaluate": {"problems": 0},
            "output": {"dir": str(out), "trace_every": 1},
        },
        "benchmark",
    )
    train(config, View())
    moments = f"checkpoints/step-{steps:06d}/optimizer.safetensors"
    found = {name: (out / name).read_bytes() for name in (*LOGS, moments)}
    lines = [json.loads(line) for line in found["metrics.jsonl"].splitlines()]
    kept = [{key: value for key, value in line.items() if not key.startswith("seconds")} for line in lines]
    return found | {"metrics.jsonl": json.dumps(kept).encode()}


def apart(first: bytes, other: bytes) -> float:
    """Largest difference of a weight."""
    from safetensors.torch import load

    a, b = load(first), load(other)
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--method", default="hapo")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [ran(Path(folder, str(i)), n, options.method, options.steps) for i, n in enumerate((1, 1, 2))]
    for threads, run in zip((1, 2), runs[1:], strict=True):
        same = [name for name in run if run[name] == runs[0][name]]
        largest = apart(runs[0][LOGS[-1]], run[LOGS[-1]])
        print(f"threads 1 and {threads}: the same bytes: {', '.join(same) or 'none'}")
        print(f"    others: {', '.join(name for name in run if name not in same) or 'none'}")
        print(f"    largest difference of a weight: {largest:.2g}")
    return int(runs[1] != runs[0])


if __name__ == "__main__":
    sys.exit(main())

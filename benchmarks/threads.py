"""Which bytes of a run depend on the number of CPU threads? python benchmarks/threads.py

The same short recipe, each time in a process of its own: with one thread, with one again, and with two. Printed is, for
each file that a run leaves, whether its bytes are those of the first run, and for the weights the largest difference.
The second run must agree in all of them, or the exit code is 1; of the third torch promises nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = (
    "metrics.jsonl", "samples.jsonl", "trace.jsonl", "model/model.safetensors",
    "checkpoints/step-{steps:06d}/optimizer.safetensors",
)  # fmt: skip


def ran(out: Path, threads: int, method: str, steps: int) -> dict[str, str]:
    """Digest of every file, seconds taken out of the metrics."""
    settings = {
        "threads": threads, "train.steps": steps, "rollout.prompts": 2, "rollout.group_size": 4,
        "rollout.max_new_tokens": 24, "evaluate.problems": 4, "evaluate.samples": 0, "output.trace_every": 1,
        "model.device": "cpu",
    }  # fmt: skip
    words = [f"--set={key}={value}" for key, value in settings.items()]
    command = [sys.executable, "-m", "tokenpo", "train", "quickstart", "--method", method, "--no-report", *words]
    # A limit from outside would hold torch to one thread whatever the recipe says.
    environment = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run([*command, "--out", str(out)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the run with {threads} threads failed:\n{done.stderr}")
    found = {}
    for name in (name.format(steps=steps) for name in FILES):
        content = (out / name).read_bytes()
        if name == "metrics.jsonl":
            lines = [json.loads(line) for line in content.splitlines()]
            kept = [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in lines]
            content = json.dumps(kept, sort_keys=True).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def apart(first: Path, other: Path) -> float:
    """Largest difference of a weight."""
    from safetensors.torch import load_file

    a, b = (load_file(run / "model" / "model.safetensors") for run in (first, other))
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--method", default="hapo")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [(1, Path(folder, "one")), (1, Path(folder, "again")), (2, Path(folder, "two"))]
        first, *others = [(threads, out, ran(out, threads, options.method, options.steps)) for threads, out in runs]
        for threads, out, digests in others:
            same = [name for name in digests if digests[name] == first[2][name]]
            differ = [name for name in digests if name not in same]
            print(f"threads 1 and {threads}: the same bytes: {', '.join(same) or 'none'}")
            print(
                f"    others: {', '.join(differ) or 'none'}; largest difference of a weight {apart(first[1], out):.2g}"
            )
    return int(others[0][2] != first[2])


if __name__ == "__main__":
    sys.exit(main())

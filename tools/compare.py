"""Trains one recipe with several methods and seeds, and compares them in pairs of equal seed.

    python tools/compare.py quickstart --methods grpo,dapo,tepo --seeds 3 --out runs/compare

Equal seeds share initial weights, the order of the prompts and the sampler's random numbers. What is finished in --out
is not run again. Prints a Markdown table: means over seeds, and the paired difference from the first method with its
95 % interval (Student's t over the seeds) and a verdict: "inconclusive" where the interval holds 0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scipy import stats


@dataclass(frozen=True)
class Figures:
    """What one run ended with; `area` is the mean training accuracy over all steps, `reached` the first step at 0.9."""

    greedy: float
    sampled: float
    area: float
    reached: float
    entropy: float
    length: float


def figures(run: Path) -> Figures:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last, steps = lines[-1], [line for line in lines if line["step"] > 0]
    reached = next((line["step"] for line in steps if line["accuracy"] >= 0.9), float("nan"))
    area = statistics.fmean(line["accuracy"] for line in steps)
    return Figures(last["eval/accuracy"], last["eval/avg"], area, reached, last["entropy"], last["length"])


def train(recipe: str, method: str, seed: int, out: Path, overrides: list[str]) -> Path:
    run = out / f"{method}-seed{seed}"
    if not (run / "model").is_dir():
        settings = [word for item in [f"seed={seed}", *overrides] for word in ("--set", item)]
        command = [sys.executable, "-m", "tokenpo", "train", recipe, "--method", method, *settings]
        done = subprocess.run([*command, "--out", str(run), "--no-report"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{method} seed {seed} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return run


def difference(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """Mean of the paired differences, and the half-width of its 95 % interval."""
    pairs = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean = statistics.fmean(pairs)
    if len(pairs) < 2:
        return mean, float("inf")
    return mean, float(stats.t.ppf(0.975, len(pairs) - 1)) * statistics.stdev(pairs) / len(pairs) ** 0.5


def verdict(mean: float, half: float) -> str:
    return "inconclusive" if abs(mean) <= half else "higher" if mean > 0 else "lower"


def table(results: dict[str, list[Figures]]) -> str:
    (baseline, base), *_ = results.items()
    lines = [
        f"| method | greedy | avg@k | mean accuracy while training | steps to 0.9 | entropy | length | "
        f"accuracy while training − {baseline}'s | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in results.items():
        means = {key: statistics.fmean(getattr(run, key) for run in runs) for key in Figures.__dataclass_fields__}
        reached = [run.reached for run in runs if run.reached == run.reached]
        when = f"{statistics.fmean(reached):.0f}" if len(reached) == len(runs) else f"{len(reached)} of {len(runs)} did"
        mean, half = difference([run.area for run in runs], [run.area for run in base])
        compared = ("", "") if name == baseline else (f"{mean:+.3f} ± {half:.3f}", verdict(mean, half))
        lines.append(
            f"| {name} | {means['greedy']:.3f} | {means['sampled']:.3f} | {means['area']:.3f} | {when} | "
            f"{means['entropy']:.3f} | {means['length']:.1f} | {compared[0]} | {compared[1]} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--methods", required=True, help="comma-separated; the first is the baseline")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    methods = options.methods.split(",")
    jobs = [(method, seed) for seed in range(options.seeds) for method in methods]
    with ThreadPoolExecutor(options.processes) as pool:
        runs = list(pool.map(lambda job: train(options.recipe, *job, options.out, options.set), jobs))
    results: dict[str, list[Figures]] = {method: [] for method in methods}
    for (method, _), run in zip(jobs, runs, strict=True):
        results[method].append(figures(run))
    print(table(results))


if __name__ == "__main__":
    main()

"""Where the time of a run goes, from the import to the report: the quickstart, or any recipe.

    python benchmarks/profile_quickstart.py [--recipe quickstart] [--method tepo] [--set train.steps=20 ...]
        [--functions 25]

One `tokenpo train` in this process under cProfile, on its CPU time. The first table gives parts of the run, indented
ones being inside the part above them or, for sampling and verification, inside both rollouts and evaluations. The
second adds up the wall-clock seconds that the run wrote into its metrics, which no profiler slows down. cProfile
lengthens what consists of many small calls (verification, logs); what happens inside torch it leaves alone.
"""

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# Label, the end of the file's name or a part of it, function. Without a file the import system's own.
PARTS = [
    ("imports", "importlib._bootstrap>", "_find_and_load"),
    ("engine: task, model", "train/run/embedded.py", "open"),
    ("rollouts", "train/run/embedded.py", "collect"),
    ("evaluations", "train/run/evaluation.py", "evaluate"),
    ("  sampling, in both", "train/models/sampler.py", "sample"),
    ("  verification, in both", "tokenpo/train/tasks/", "score"),
    ("credit", "tokenpo/core/objective.py", "prepare"),
    ("updates", "train/run/updates.py", "improve"),
    ("  gradients", "train/run/updates.py", "gradients"),
    ("  optimiser", "train/run/updates.py", "_descend"),
    ("checkpoints", "train/run/checkpoint.py", "save"),
    ("final model", "train/models/model.py", "save"),
    ("report", "tokenpo/lab/report/", "write_report"),
]


def part_seconds(stats: pstats.Stats) -> dict[str, float]:
    """CPU seconds inside each part that was called, what it calls included."""
    seconds: dict[str, float] = {}
    for (file, _, name), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        for label, where, function in PARTS:
            if name == function and where in Path(file).as_posix():
                seconds[label] = seconds.get(label, 0.0) + cumulative
    return seconds


def written(run: Path) -> dict[str, float]:
    """Wall-clock seconds of all steps by part, as the run noted them."""
    found: Counter[str] = Counter()
    for text in (run / "metrics.jsonl").read_text().splitlines():
        found.update({k: v for k, v in json.loads(text).items() if k.startswith("seconds_")})
    return dict(found)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--method", default="tepo")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="of the recipe")
    parser.add_argument("--functions", type=int, default=0, help="also the functions with the most time of their own")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        changes = [word for change in options.set for word in ("--set", change)]
        profile, began = cProfile.Profile(time.process_time), time.process_time()
        profile.enable()
        from tokenpo.cli.main import main as tokenpo

        status = tokenpo(["train", options.recipe, "--method", options.method, "--out", str(run), *changes])
        profile.disable()
        whole = time.process_time() - began
        if status:
            raise SystemExit(f"the run ended with status {status}")
        stats = pstats.Stats(profile)
        print(f"\n{options.recipe}, {options.method}: {whole:.1f} s of CPU time")
        found = part_seconds(stats)
        for label, _, _ in PARTS:
            seconds = found.get(label)
            share = "not called" if seconds is None else f"{seconds:8.2f} s {100 * seconds / max(whole, 1e-9):6.1f} %"
            print(f"  {label:<28}{share}")
        print("wall-clock seconds of the steps, as written: ", end="")
        print(", ".join(f"{name.removeprefix('seconds_')} {seconds:.1f}" for name, seconds in written(run).items()))
        if options.functions:
            sys.stdout.flush()
            stats.sort_stats("tottime").print_stats(options.functions)


if __name__ == "__main__":
    main()

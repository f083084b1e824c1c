"""Everything that is worth measuring on a card, in pieces of a few minutes; `make gpu` calls it.

    python benchmarks/gpu/run.py [--parts tests kernels fused sampler train trl] [--minutes 9]
    python benchmarks/gpu/run.py --small --device cpu        every piece in small, without a card

A piece is a file beside this one; `cases(small, device)` of it names what it measures, the weightiest first. A piece
runs in a process of its own, and each case adds a line to OUT/PIECE.jsonl when it is done, so that nothing is lost
where time or memory ends. A case whose line is there already is left out; one that failed is tried again.
`tools/site/gpu.py` makes docs/gpu.json and docs/gpu.md of the lines.
"""

import argparse
import gc
import importlib
import json
import platform
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PARTS = ("tests", "kernels", "fused", "sampler", "train", "trl")
PACKAGES = ("torch", "triton", "transformers", "trl", "verl", "liger-kernel", "vllm")
# Seconds that a case needs at least; none is begun with less.
LEAST = 5.0
SECONDS_TO_A_WORD = 30.0


def machine(device: str) -> dict[str, str]:
    """Card, driver and versions."""
    import torch

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if device != "cuda":
        return {"card": f"none, a small run on {device}", **found}
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    card = torch.cuda.get_device_properties(0)
    return {"card": card.name, "memory": f"{card.total_memory / 2**30:.1f} GiB", "driver": driver, **found}


def lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a piece; one that was cut off is none."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def run_part(name: str, small: bool, device: str, out: Path, until: float, only: str = "") -> None:
    """Runs the cases of a piece, or those named like `only`, that are not there yet, until the clock shows `until`."""
    # Without this folder, whose trl.py and sampler.py would hide the package and the script of that name.
    sys.path[:] = [str(HERE.parent), *(place for place in sys.path if Path(place).resolve() != HERE)]
    file = out / f"{name}.jsonl"
    done = {line["case"] for line in lines(file) if "error" not in line}
    about = machine(device)
    with file.open("a", encoding="utf-8") as sink:
        for case, run in importlib.import_module(f"gpu.{name}").cases(small, device).items():
            if case in done or only not in case:
                continue
            if time.time() + LEAST > until:
                print(f"{name}: no time is left for {case}", flush=True)
                return
            line = {"case": case, **measured(run, device)}
            print(f"{name}: {json.dumps(line)}", flush=True)
            sink.write(json.dumps(line | {"machine": about}) + "\n")
            sink.flush()


def measured(run: Any, device: str) -> dict[str, Any]:
    """The numbers of a case, or its error, with the seconds it took."""
    import torch

    began, over = time.perf_counter(), threading.Event()
    threading.Thread(target=_say_where, args=(threading.get_ident(), over), daemon=True).start()
    try:
        found = {"numbers": run()}
    except Exception as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"[:600]}
    over.set()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def _say_where(thread: int, over: threading.Event) -> None:
    """Prints every 30 seconds where the thread is, which is all that is left of a case where the time ends.

    Not by faulthandler's timer: it reads frames while they change, and has ended a run on a card with a segmentation
    fault.
    """
    while not over.wait(SECONDS_TO_A_WORD):
        print("".join(traceback.format_stack(sys._current_frames()[thread])[-8:]), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true", help="sizes that a CPU runs in seconds")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--minutes", type=float, default=9.0, help="of a piece; what is left runs at the next call")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--here", action="store_true", help="in this process, for a single piece")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for part in chosen.parts:
        until = time.time() + 60 * chosen.minutes
        if chosen.here:
            run_part(part, chosen.small, chosen.device, chosen.out, until, chosen.only)
        else:
            given = ["--parts", part, "--device", chosen.device, "--minutes", str(chosen.minutes), "--here"]
            given += ["--only", chosen.only, "--out", str(chosen.out), *(["--small"] if chosen.small else [])]
            command = [sys.executable, str(Path(__file__).resolve()), *given]
            try:
                subprocess.run(command, check=False, timeout=60 * chosen.minutes + 60)
            except subprocess.TimeoutExpired:
                print(f"{part}: stopped, a case would not end", flush=True)
        latest = {line["case"]: line for line in lines(chosen.out / f"{part}.jsonl")}
        failed += [f"{part}: {case}: {line['error']}" for case, line in latest.items() if "error" in line]
        failed += [] if latest else [f"{part}: no case ended"]
    print(*failed, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

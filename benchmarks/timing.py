"""Clocks and memory of a run, on a CPU or on a GPU. What the other scripts share."""

import ctypes
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

Run = Callable[[], Any]
# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_memory() -> bool:
    """Has the process keep what it frees, as a GPU's allocator does; True where that is glibc's to decide.

    Otherwise every large tensor begins with page faults, which cost what the machine makes them cost.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1))


def clock(device: str = "cpu") -> float:
    """Seconds: CPU time of the process, or wall-clock once the GPU has done what it was given."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def once(run: Run, device: str = "cpu") -> float:
    """Milliseconds of one run: CPU time, or what lies between two events on the GPU."""
    if device == "cpu":
        start = clock()
        run()
        return 1e3 * (clock() - start)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def fits(name: Any, run: Run) -> bool:
    """Runs once; False, and said, where that takes more memory than a GPU has."""
    try:
        run()
    except torch.OutOfMemoryError as error:
        print(f"{name}: left out, {str(error).splitlines()[0]}", flush=True)
        return False
    return True


def milliseconds(runs: dict[Any, Run], rounds: int, device: str = "cpu") -> dict[Any, float]:
    """Median of each, over rounds in which they take turns in an order of the round's own."""
    runs = {key: run for key, run in runs.items() if fits(key, run)}
    seen: dict[Any, list[float]] = {key: [] for key in runs}
    for i in range(rounds):
        # What ran before leaves its traces in the caches.
        for key in random.Random(i).sample(list(runs), len(runs)):
            seen[key].append(once(runs[key], device))
    return {key: statistics.median(times) for key, times in seen.items()}


def peak_bytes(run: Run, device: str = "cpu") -> int:
    """Most memory held at once by one run, beyond what was held before it, from the allocator's record."""
    if device != "cpu":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    level = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak

"""What a run holds at once, from the allocator's own record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def peak_bytes(run: Callable[[], Any]) -> int:
    """Most memory that was held above what was there before, from the allocator's own record."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    level = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak

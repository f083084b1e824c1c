"""The study of learning on one GPU (studies/2026-11-26-card): its base model, and as many runs as time allows.

Both write into runs/card, or where BED_OUT says; BED_MINUTES (4) is the time of the runs, BED_JOBS (10) how many go on
at a time.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STUDY = Path(__file__).resolve().parents[2] / "studies" / "2026-11-26-card"
Case = Callable[[], dict[str, float | str]]


def cases(small: bool, device: str) -> dict[str, Case]:
    return {"base": functools.partial(base, small, device), "runs": functools.partial(runs, small, device)}


def base(small: bool, device: str) -> dict[str, float | str]:
    found = study().make_base(place(small), device, 1 if small else jobs(), small)
    return {name: found[name] for name in ("accuracy", "greedy", "dial", "steps", "seconds", "parameters")}


def runs(small: bool, device: str) -> dict[str, float | str]:
    minutes = float(os.environ.get("BED_MINUTES", "4"))
    return study().run(place(small), device, minutes, 1 if small else jobs(), small)


def place(small: bool) -> Path:
    return Path(os.environ.get("BED_OUT", "runs/card-small" if small else "runs/card"))


def jobs() -> int:
    return int(os.environ.get("BED_JOBS", "10"))


def study() -> Any:
    if str(STUDY) not in sys.path:
        sys.path.insert(0, str(STUDY))
    return importlib.import_module("card")

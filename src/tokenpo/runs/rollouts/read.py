"""Finds and reads recorded rollouts: a file of either kind, or those of a run directory."""

from __future__ import annotations

import re
from pathlib import Path

from ...base.errors import TokenPOError
from .lines import choose_step, read_lines
from .recording import Recording
from .tensors import read_tensors

FOLDER = "rollouts"


def read(path: Path | str, step: int | None = None) -> Recording:
    """The rollout batch of a JSON Lines or safetensors file, or of a run directory of `tokenpo train`.

    Args:
        step: which one, where there are several; None is the last.

    Raises:
        TokenPOError: nothing there, or a mistake in the file; one sentence with its remedy.
    """
    path = Path(path)
    if path.is_dir():
        path = _of_run(path, step)
    if not path.is_file():
        raise TokenPOError(
            f"{path}: there is no such file: give recorded rollouts (docs/rollouts.md) or a run directory"
        )
    if path.suffix != ".safetensors":
        return read_lines(path, step)
    recording = read_tensors(path)
    choose_step(str(path), [] if recording.step is None else [recording.step], step)
    return recording


def step_file(run: Path | str, step: int) -> Path:
    """Where a run keeps the rollouts of a step."""
    return Path(run) / FOLDER / f"step-{step:06d}.jsonl"


def recorded_steps(run: Path) -> list[int]:
    """The steps whose rollouts a run has kept, ascending."""
    names = (re.fullmatch(r"step-(\d+)\.jsonl", file.name) for file in (run / FOLDER).glob("step-*.jsonl"))
    return sorted(int(name[1]) for name in names if name)


def _of_run(run: Path, step: int | None) -> Path:
    steps = recorded_steps(run)
    chosen_step = choose_step(str(run), steps, step) if steps else None
    if chosen_step is None:
        raise TokenPOError(
            f"{run} holds no recorded rollouts: train with --set output.rollouts_every=10, or give a file "
            "(docs/rollouts.md)"
        )
    return step_file(run, chosen_step)

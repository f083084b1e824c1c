"""Files of recorded rollouts: JSON Lines, one response a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ....base.errors import TokenPOError
from ....base.files import explained, whole
from ....base.jsonl import whole_lines
from .recording import Recording, record
from .response import KNOWN, Response, parse, plain

FOLDER = "rollouts"


def read(path: Path | str, step: int | None = None) -> Recording:
    """Reads the rollout batch of a JSON Lines file, or of a run directory.

    Args:
        step: the step to read, if there are several; None reads the last.

    Raises:
        TokenPOError: no file, or a mistake in it; the message has the remedy.
    """
    path = Path(path)
    if path.is_dir():
        steps = recorded_steps(path)
        chosen = _choose_step(str(path), steps, step) if steps else None
        if chosen is None:
            raise TokenPOError(
                f"{path} holds no recorded rollouts: train with --set output.rollouts_every=10, or give a file "
                "(docs/rollouts.md)"
            )
        path = step_file(path, chosen)
    if not path.is_file():
        raise TokenPOError(
            f"{path}: there is no such file: give recorded rollouts (docs/rollouts.md) or a run directory"
        )
    if path.suffix == ".safetensors":
        raise TokenPOError(
            f"{path} holds tensors: write them as JSON Lines with `responses` and `write_lines` (docs/rollouts.md)"
        )
    return _read_lines(path, step)


def step_file(run: Path | str, step: int) -> Path:
    """The file with a step's rollouts in a run directory."""
    return Path(run) / FOLDER / f"step-{step:06d}.jsonl"


def recorded_steps(run: Path) -> list[int]:
    """The steps with recorded rollouts in a run directory, ascending."""
    names = (re.fullmatch(r"step-(\d+)\.jsonl", file.name) for file in (run / FOLDER).glob("step-*.jsonl"))
    return sorted(int(name[1]) for name in names if name)


def drop_after(run: Path, step: int) -> None:
    """Removes the rollouts of later steps; a run resumed from `step` records them again."""
    for later in recorded_steps(run):
        if later > step:
            step_file(run, later).unlink()


def write_lines(path: Path | str, records: Iterable[Response | Mapping[str, Any]]) -> Path:
    """Writes the file whole or not at all; TokenPOError for a non-finite number, or if it cannot be written."""
    path = Path(path)
    with explained(lambda why: f"{path} cannot be written: {why}; give another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair is not a character, but its escape is allowed in a JSON string.
        with whole(path) as part, part.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            for number, response in enumerate(records, start=1):
                line = response.as_json() if isinstance(response, Response) else response
                try:
                    file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
                except ValueError as error:
                    message = f"{path} line {number} would hold a number that is not finite: mend what made it"
                    raise TokenPOError(message) from error
    return path


def _read_lines(path: Path, step: int | None = None) -> Recording:
    """The batch of a step, by default the last; a note counts lines that are not JSON objects."""
    notes: list[str] = []
    lines = [(line.number, line.value) for line in whole_lines(path, _object, notes)]
    if not lines:
        cause = notes[0].rstrip(".") if notes else "the file is empty"
        raise TokenPOError(f"{path} holds no response ({cause}): write one JSON object a line (docs/rollouts.md)")
    numbered = [(number, parse(f"{path} line {number}", value)) for number, value in lines]
    steps = sorted({response.step for _, response in numbered if response.step is not None})
    chosen_step = _choose_step(str(path), steps, step)
    chosen = [(number, response) for number, response in numbered if response.step in (chosen_step, None)]
    left_out = bool(notes)
    if len(steps) > 1:
        notes.append(f"{path.name} holds {len(steps)} steps; shown is step {chosen_step}.")
    unread = dict.fromkeys(name for _, value in lines for name in map(plain, value) if name not in KNOWN)
    where = [f"{path} line {number}" for number, _ in chosen]
    return record(str(path), [response for _, response in chosen], where.__getitem__, [*unread], notes, left_out)


def _choose_step(source: str, steps: list[int], step: int | None) -> int | None:
    """`step`, or the last step; TokenPOError if it is missing."""
    if step is None:
        return steps[-1] if steps else None
    if not steps:
        raise TokenPOError(f"{source} does not say which step its rollouts are from: do not ask for step {step}")
    if step not in steps:
        listed = ", ".join(map(str, steps[-20:]))
        raise TokenPOError(f"{source} holds no rollouts of step {step} (steps: {listed}): give one of these")
    return step


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__}, not an object")
    return value

"""Recorded responses as JSON Lines: one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.jsonl import whole_lines
from .parse import KNOWN, parse, plain
from .recording import Recording, record
from .response import Response
from .whole import whole


def write_lines(path: Path | str, records: Iterable[Response | Mapping[str, Any]]) -> Path:
    """Writes the file whole or not at all, and its directory where there is none.

    Raises:
        TokenPOError: a number that is not finite, or a place that cannot be written.
    """
    path = Path(path)
    # Half a surrogate pair is no character; inside a JSON string its escape is.
    with whole(path) as part, part.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for number, response in enumerate(records, start=1):
            line = response.as_json() if isinstance(response, Response) else response
            file.write(_text(line, f"{path} line {number}") + "\n")
    return path


def read_lines(path: Path, step: int | None = None) -> Recording:
    """The batch of a file, or of one step of it: the last one, unless another is asked for.

    A line that is not a JSON object is left out and told in a note.

    Raises:
        TokenPOError: no whole line, no such step, or a mistake in a line; the message names line, field and remedy.
    """
    notes: list[str] = []
    lines = [(line.number, line.value) for line in whole_lines(path, _object, notes)]
    if not lines:
        cause = notes[0].rstrip(".") if notes else "the file is empty"
        raise TokenPOError(f"{path} holds no response ({cause}): write one JSON object a line (docs/rollouts.md)")
    numbered = [(number, parse(f"{path} line {number}", value)) for number, value in lines]
    steps = sorted({response.step for _, response in numbered if response.step is not None})
    chosen_step = choose_step(str(path), steps, step)
    chosen = [(number, response) for number, response in numbered if response.step in (chosen_step, None)]
    left_out = bool(notes)
    if len(steps) > 1:
        notes.append(f"{path.name} holds {len(steps)} steps; shown is step {chosen_step}.")
    unread = dict.fromkeys(name for _, value in lines for name in map(plain, value) if name not in KNOWN)
    where = [f"{path} line {number}" for number, _ in chosen]
    return record(str(path), [response for _, response in chosen], where.__getitem__, [*unread], notes, left_out)


def choose_step(source: str, steps: list[int], step: int | None) -> int | None:
    """The step asked for, or the last one.

    Raises:
        TokenPOError: it is not there.
    """
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


def _text(line: Mapping[str, Any], where: str) -> str:
    try:
        return json.dumps(line, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise TokenPOError(f"{where} would hold a number that is not finite: mend what made it") from error

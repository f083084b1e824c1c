"""Files of recorded rollouts: JSON Lines, or safetensors with the texts in their metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...base.errors import MissingInput, TokenPOError, nearest
from ...base.files import explained, whole
from ...base.jsonl import whole_lines
from .recording import Recording, record
from .response import KNOWN, PER_RESPONSE, PER_TOKEN, Response, parse, plain

FOLDER = "rollouts"
NEEDED = ("mask", "reward", "group", "old_logprob")
_TOKENS = (*PER_TOKEN, "token_ids")
_JUDGED = {0: False, 1: True, -1: None}
_STEP_DIGITS = 18


def read(path: Path | str, step: int | None = None) -> Recording:
    """Reads the rollout batch of a JSON Lines or safetensors file, or of a run directory.

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
    if path.suffix != ".safetensors":
        return _read_lines(path, step)
    recording = _read_tensors(path)
    _choose_step(str(path), [] if recording.step is None else [recording.step], step)
    return recording


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


def _read_tensors(path: Path) -> Recording:
    tensors, metadata = _load(path)
    for name in NEEDED:
        if name not in tensors:
            raise MissingInput(
                f"{path}: no tensor {name!r} (tensors: {', '.join(map(plain, sorted(tensors))) or 'none'}; "
                f"{nearest(name, map(plain, tensors))}): write it as docs/rollouts.md says"
            )
    mask = tensors["mask"].bool()
    if mask.dim() != 2 or not len(mask):
        raise TokenPOError(f"{path}: 'mask' has shape {list(mask.shape)}: give [N, T], true on response tokens")
    _check_shapes(path, tensors, mask)
    for row, verdict in enumerate(tensors["correct"].tolist() if "correct" in tensors else ()):
        if verdict not in _JUDGED:
            raise TokenPOError(f"{path} row {row}: 'correct' is {verdict}: give 1, 0, or -1 where it was not judged")
    if len(metadata.get("step", "")) > _STEP_DIGITS:
        raise TokenPOError(
            f"{path}: metadata 'step' is {metadata['step'][:20]!r}...: give a whole number of at most {_STEP_DIGITS} "
            "digits"
        )
    texts = {name: _texts(path, metadata, name, len(mask)) for name in ("tokens", "prompt", "group")}
    if "rewards" in tensors:
        count = tensors["rewards"].shape[1]
        texts["rewards"] = _texts(path, metadata, "rewards", count) or list(range(count))
    rows = [_line(tensors, texts, metadata, mask[row], row) for row in range(len(mask))]
    responses = [parse(f"{path} row {row}", line) for row, line in enumerate(rows)]
    unread = sorted(plain(name) for name in tensors if name not in KNOWN | {"mask"})
    return record(str(path), responses, lambda row: f"{path} row {row}", unread, [])


def _line(
    tensors: Mapping[str, Tensor], texts: Mapping[str, Any], metadata: Mapping[str, str], row_mask: Tensor, row: int
) -> dict[str, Any]:
    """The row as the line of a JSON Lines file."""
    line: dict[str, Any] = {}
    line |= {name: tensors[name][row][row_mask].tolist() for name in _TOKENS if name in tensors}
    line |= {name: tensors[name][row].item() for name in ("reward", "group", *PER_RESPONSE) if name in tensors}
    line |= {name: values[row] for name, values in texts.items() if values is not None and name != "rewards"}
    if "rewards" in tensors:
        each = zip(texts["rewards"], tensors["rewards"][row].tolist(), strict=True)
        line["rewards"] = {str(name): None if x != x else x for name, x in each}
    if "correct" in tensors:
        line["correct"] = _JUDGED[int(tensors["correct"][row])]
    if "step" in metadata:
        line["step"] = int(metadata["step"]) if metadata["step"].isdecimal() else metadata["step"]
    if texts["tokens"] is None and "token_ids" not in line:
        line["tokens"] = ["·"] * int(row_mask.sum())
    return line


def _load(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise TokenPOError(f"{path} is not a whole safetensors file ({error}): write it again") from error


def _check_shapes(path: Path, tensors: Mapping[str, Tensor], mask: Tensor) -> None:
    for name, x in tensors.items():
        if name == "rewards" and (x.dim() != 2 or len(x) != len(mask) or not x.shape[1]):
            raise TokenPOError(f"{path}: 'rewards' has shape {list(x.shape)}: give [N, R] with N = {len(mask)}")
        shape = mask.shape if name in _TOKENS else mask.shape[:1]
        if name in KNOWN - {"rewards"} and x.shape != shape:
            axes = "[N, T]" if len(shape) == 2 else "[N]"
            raise TokenPOError(f"{path}: {name!r} has shape {list(x.shape)}: give {axes} = {list(shape)}, as the mask")


def _texts(path: Path, metadata: Mapping[str, str], name: str, count: int) -> list[Any] | None:
    """A list of N values in the metadata, or None."""
    if name not in metadata:
        return None
    try:
        values = json.loads(metadata[name])
    except (ValueError, RecursionError) as error:
        raise TokenPOError(f"{path}: metadata {name!r} is not JSON: give a JSON list with {count} values") from error
    if not isinstance(values, list) or len(values) != count:
        raise TokenPOError(f"{path}: metadata {name!r} is no list of {count} values: give one for each row")
    return values

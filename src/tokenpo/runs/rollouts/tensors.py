"""Recorded responses as safetensors: the fields of `Rollouts` and `Policy` as padded tensors, texts in the metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.errors import MissingInput, TokenPOError, nearest
from .parse import KNOWN, parse, plain
from .recording import Recording, record
from .response import PER_TOKEN, Response
from .whole import whole

NEEDED = ("mask", "reward", "group", "old_logprob")
_JUDGED = {0: False, 1: True, -1: None}
_STEP_DIGITS = 18


def write_tensors(path: Path | str, responses: Sequence[Response]) -> Path:
    """Writes responses of one step, float64, whole or not at all.

    Raises:
        TokenPOError: a place that cannot be written, or an input that only some of the responses have.
    """
    from safetensors.torch import save_file

    path = Path(path)
    batch = record(str(path), responses, lambda row: f"response {row}", [], [])
    owners = {**vars(batch.rollouts), **(vars(batch.policy) if batch.moved else {})}
    tensors = {name: x.contiguous() for name, x in owners.items() if x is not None}
    judged = batch.correct
    if any(x is not None for x in judged):
        # -1: not judged.
        tensors["correct"] = torch.tensor([-1 if x is None else int(x) for x in judged], dtype=torch.int8)
    texts = {
        "tokens": [response.tokens for response in responses],
        "prompt": [response.prompt for response in responses],
        "group": [response.group for response in responses],
    }
    metadata = {name: json.dumps(values, ensure_ascii=False) for name, values in texts.items()}
    metadata |= {} if batch.step is None else {"step": str(batch.step)}
    with whole(path) as part:
        save_file(tensors, part, metadata)
    return path


def read_tensors(path: Path) -> Recording:
    """The batch of a file.

    Raises:
        MissingInput: a tensor that every file must have is not there.
        TokenPOError: not a safetensors file, or a mistake in it; the message names tensor, row and remedy.
    """
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
    _check_verdicts(path, tensors)
    if len(metadata.get("step", "")) > _STEP_DIGITS:
        raise TokenPOError(
            f"{path}: metadata 'step' is {metadata['step'][:20]!r}...: give a whole number of at most {_STEP_DIGITS} "
            "digits"
        )
    texts = {name: _texts(path, metadata, name, len(mask)) for name in ("tokens", "prompt", "group")}
    responses = [
        parse(f"{path} row {row}", _line(tensors, texts, metadata, mask[row], row)) for row in range(len(mask))
    ]
    unread = sorted(plain(name) for name in tensors if name not in KNOWN | {"mask"})
    return record(str(path), responses, lambda row: f"{path} row {row}", unread, [])


def _line(
    tensors: Mapping[str, Tensor], texts: Mapping[str, Any], metadata: Mapping[str, str], row_mask: Tensor, row: int
) -> dict[str, Any]:
    """The row as the line of a JSON Lines file."""
    line: dict[str, Any] = {}
    line |= {name: tensors[name][row][row_mask].tolist() for name in (*PER_TOKEN, "token_ids") if name in tensors}
    line |= {name: tensors[name][row].item() for name in ("reward", "group", "prompt_logprob") if name in tensors}
    line |= {name: values[row] for name, values in texts.items() if values is not None}
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
        shape = mask.shape if name in (*PER_TOKEN, "token_ids") else mask.shape[:1]
        if name in KNOWN and x.shape != shape:
            axes = "[N, T]" if len(shape) == 2 else "[N]"
            raise TokenPOError(f"{path}: {name!r} has shape {list(x.shape)}: give {axes} = {list(shape)}, as the mask")


def _check_verdicts(path: Path, tensors: Mapping[str, Tensor]) -> None:
    for row, verdict in enumerate(tensors["correct"].tolist() if "correct" in tensors else ()):
        if verdict not in _JUDGED:
            raise TokenPOError(f"{path} row {row}: 'correct' is {verdict}: give 1, 0, or -1 where it was not judged")


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

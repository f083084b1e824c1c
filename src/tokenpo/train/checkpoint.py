"""Checkpoints: all that a run needs to go on as if it had never stopped, in a directory that is whole or not there.

    checkpoints/step-000010/  model.safetensors  optimizer.safetensors  state.json  checksums.json

Nothing is pickled. The draws of sampler and shuffling are keyed by (seed, position), so there is no generator state to
save: step, data cursor and the objective's memory say where the run stands. A directory is written under another name,
brought to the disk and renamed; its checksums tell a good one from a damaged one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import TokenPOError


@dataclass(frozen=True)
class Progress:
    """Where a run stands after `step` steps.

    Args:
        step: rollout batches trained on.
        updates: optimiser updates made; the learning rate follows it.
        cursor: the first problem of the training order that was not drawn yet.
        memory: what each of the objective's memories holds, in their order; none before the first rollout.
        sizes: bytes of each JSON Lines file.
    """

    step: int = 0
    updates: int = 0
    cursor: int = 0
    memory: Sequence[Mapping[str, float]] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


def save(directory: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> Path:
    """Writes checkpoints/step-NNNNNN below the run directory, atomically; returns its path."""
    from safetensors.torch import save_file

    target = directory / "checkpoints" / f"step-{progress.step:06d}"
    work = target.with_name(f".writing-{target.name}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    weights, moments = _weights(model), _moments(model, optimizer)
    save_file({name: x.detach().cpu().contiguous() for name, x in weights.items()}, work / "model.safetensors")
    save_file({name: x.detach().cpu().contiguous() for name, x in moments.items()}, work / "optimizer.safetensors")
    (work / "state.json").write_text(json.dumps(dataclasses.asdict(progress), indent=1), encoding="utf-8")
    sums = {file.name: _checksum(file) for file in sorted(work.iterdir())}
    (work / "checksums.json").write_text(json.dumps(sums, indent=1), encoding="utf-8")
    for file in work.iterdir():
        _sync(file)
    _sync(work)
    old = target.with_name(f".writing-old-{target.name}")
    if target.exists():
        target.rename(old)
    work.rename(target)
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)
    return target


def prune(directory: Path, keep: int) -> None:
    """Keeps the newest `keep` checkpoints, and nothing half-written."""
    for path in (*_found(directory)[keep:], *(directory / "checkpoints").glob(".writing-*")):
        shutil.rmtree(path)


def newest(directory: Path) -> tuple[Path, list[Path]]:
    """The newest undamaged checkpoint, and the damaged ones that were passed over.

    Raises:
        TokenPOError: there is none.
    """
    damaged: list[Path] = []
    for path in _found(directory):
        if _is_whole(path):
            return path, damaged
        damaged.append(path)
    seen = f"; damaged: {', '.join(path.name for path in damaged)}" if damaged else ""
    raise TokenPOError(f"{directory} holds no checkpoint to resume from{seen}: start it anew with tokenpo train RECIPE")


def restore(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Brings model and optimiser to the state of a checkpoint.

    Raises:
        TokenPOError: its tensors are not those of this model.
    """
    from safetensors.torch import load_file

    weights = _weights(model)
    saved = load_file(path / "model.safetensors")
    if saved.keys() != weights.keys() or any(saved[name].shape != x.shape for name, x in weights.items()):
        odd = sorted(saved.keys() ^ weights.keys()) or [n for n, x in weights.items() if saved[n].shape != x.shape]
        raise TokenPOError(f"{path} was saved from another model than the recipe names: {odd[0]} does not fit")
    with torch.no_grad():
        for name, x in weights.items():
            x.copy_(saved[name])
    moments = load_file(path / "optimizer.safetensors")
    _set_moments(model, optimizer, moments)
    return Progress(**json.loads((path / "state.json").read_text(encoding="utf-8")))


def _weights(model: torch.nn.Module) -> dict[str, Tensor]:
    """What training changes; frozen tensors (the base under LoRA) come from the model directory."""
    return {name: x for name, x in model.named_parameters() if x.requires_grad}


def _moments(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = {name: optimizer.state.get(x, {}) for name, x in _weights(model).items()}
    return {f"{key}/{name}": value for name, entry in state.items() for key, value in entry.items()}


def _set_moments(model: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    by_name: dict[str, dict[str, Tensor]] = {}
    for label, value in saved.items():
        key, name = label.split("/", 1)
        by_name.setdefault(name, {})[key] = value
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    place = {parameter: i for i, parameter in enumerate(order)}
    state = {place[x]: by_name[name] for name, x in _weights(model).items() if name in by_name}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _found(directory: Path) -> list[Path]:
    return sorted((directory / "checkpoints").glob("step-*"), reverse=True)


def _is_whole(path: Path) -> bool:
    try:
        sums: dict[str, Any] = json.loads((path / "checksums.json").read_text(encoding="utf-8"))
        return bool(sums) and all(_checksum(path / name) == value for name, value in sums.items())
    except (OSError, ValueError):
        return False


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

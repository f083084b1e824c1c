"""Checkpoints: everything that a run needs to resume as if it had never stopped, written whole or not at all.

    checkpoints/step-000000/  state.json  checksums.json          before the first step: the weights are the model's own
    checkpoints/step-000010/  model.safetensors  optimizer.safetensors  state.json  checksums.json
                              critic.safetensors                  with a critic: value head and its optimiser's state
    model/                                                        the final model, which names its checkpoint

Nothing is pickled. Sampler and shuffling are keyed by (seed, position), so there is no generator state to save. A
directory is written under a temporary name, flushed to disk and renamed; checksums detect damaged ones.
"""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ...base.files import json_object, remove_directory, whole_directory
from .. import models as language
from ..models.directory import trained
from . import card

_SUMS = "checksums.json"
_CRITIC = "critic.safetensors"
Trained = tuple[torch.nn.Module, torch.optim.Optimizer]


@dataclass(frozen=True)
class Progress:
    """The state of a run after `step` steps.

    Args:
        step: rollout batches trained on.
        cursor: the first training problem that was not drawn yet.
        learner: as from `Learner.state_dict`.
        sizes: bytes of each JSON Lines file.
        settings: the settings that the run's steps depend on; empty before the first step.
        unlogged: the metrics of a step whose evaluation failed, which come before the next step.
    """

    step: int = 0
    cursor: int = 0
    learner: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    unlogged: Mapping[str, float] = field(default_factory=dict)


def save(directory: Path, progress: Progress, trained: Trained | None = None, critic: Trained | None = None) -> Path:
    """Writes checkpoints/step-NNNNNN atomically; OSError or SafetensorError if writing fails (full disk).

    It has no tensors before a run's first update.
    """
    from safetensors.torch import save_file

    tensors: dict[str, dict[str, Tensor]] = {}
    if trained is not None:
        tensors |= {"model": _weights(trained[0]), "optimizer": _moments(*trained)}
    if critic is not None:
        tensors["critic"] = critic[0].state_dict() | _moments(*critic)
    target = directory / "checkpoints" / f"step-{progress.step:06d}"
    # While the new one replaces it, the old one is `.old-step-*`, which `_found` also lists.
    with whole_directory(target) as work:
        for name, kept in tensors.items():
            save_file({key: x.detach().cpu().contiguous() for key, x in kept.items()}, work / f"{name}.safetensors")
        (work / "state.json").write_text(json.dumps(dataclasses.asdict(progress), indent=1), encoding="utf-8")
        sums = {file.name: _checksum(file) for file in sorted(work.iterdir())}
        (work / _SUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")
    return target


def prune(directory: Path, keep: int, step: int) -> None:
    """Keeps the newest `keep` checkpoints up to `step`; removes older, later (damaged) and half-written ones."""
    checkpoints = _found(directory)
    kept = [path for path in checkpoints if _step(path) <= step and not path.name.startswith(".")][:keep]
    for path in checkpoints:
        if path not in kept:
            remove_directory(path)
    for path in (directory / "checkpoints").glob(".writing-*"):
        shutil.rmtree(path, ignore_errors=True)


def newest(directory: Path) -> tuple[Path, Progress, list[str]]:
    """The newest checkpoint that is whole, its state, and why later ones are passed over.

    Raises:
        TokenPOError: there is none, or only the one before the first step and others are damaged.
    """
    passed: list[str] = []
    for path in _found(directory):
        if not _is_whole(path):
            passed.append(f"checkpoint {path.name} is damaged")
        elif _step(path) or not passed:
            return path, progress_of(path), passed
    why = "".join(f"; {why}" for why in passed)
    raise TokenPOError(f"{directory} holds no checkpoint to resume from{why}: copy the run once more, or begin anew")


def exists(directory: Path) -> bool:
    """Whether there is any checkpoint, damaged ones included."""
    return bool(_found(directory))


def weights(directory: Path, step: int) -> str | None:
    return json_object(directory / "checkpoints" / f"step-{step:06d}" / _SUMS).get("model.safetensors")


def last_progress(directory: Path) -> Progress | None:
    """The state of the newest checkpoint with a readable state; tensors are not checked."""
    return next((progress_of(path) for path in _found(directory) if json_object(path / "state.json")), None)


def restore(path: Path, trained: Trained, critic: Trained | None) -> None:
    """Loads a checkpoint into fresh models and optimisers; TokenPOError if it is of another model.

    A critic that the checkpoint lacks stays fresh: its method had none.
    """
    from safetensors.torch import load_file

    if not (path / "model.safetensors").is_file():
        return
    _set_weights(path, _weights(trained[0]), load_file(path / "model.safetensors"))
    _set_moments(*trained, load_file(path / "optimizer.safetensors"))
    if critic is not None and (path / _CRITIC).is_file():
        saved = load_file(path / _CRITIC)
        moments = {label: saved.pop(label) for label in [*saved] if "/" in label}
        _set_weights(path, critic[0].state_dict(), saved)
        _set_moments(*critic, moments)


def save_model(run: Path, lm: language.LanguageModel, step: int) -> None:
    """Writes model/ with card, step and checksum of its checkpoint, and adapter/ under LoRA; raises like `save`."""
    language.save_adapter(lm, run / "adapter")  # first, because model/ marks the run as finished
    language.save(lm, run / "model", _model_of(run, step), card.files(run))


def final_model(run: Path) -> list[str]:
    lines = [f"model: {run / 'model'}"]
    if (adapter := run / "adapter").is_dir():
        size = sum(file.stat().st_size for file in adapter.iterdir())
        lines.append(f"adapter: {adapter} ({size / 1e6:.1f} MB; model/ has it merged in)")
    critics = [path / _CRITIC for path in _found(run)[:1] if (path / _CRITIC).is_file()]
    return lines + [f"value head: {critic} (model/ is without it)" for critic in critics]


def has_model(run: Path, step: int) -> bool:
    """Whether model/ belongs to this step's checkpoint, and is not older."""
    return trained(run / "model") == _model_of(run, step)


def owes_model(run: Path, step: int) -> bool:
    """Whether this step has a checkpoint, but model/ does not belong to it."""
    return weights(run, step) is not None and not has_model(run, step)


def _model_of(run: Path, step: int) -> dict[str, object]:
    return {"step": step, "weights": weights(run, step)}


def progress_of(path: Path) -> Progress:
    """The state in a checkpoint; TokenPOError if another version wrote it."""
    try:
        return Progress(**json_object(path / "state.json"))
    except TypeError as error:
        raise TokenPOError(f"{path} is of another version of tokenpo ({error}): resume with that") from error


def _weights(model: torch.nn.Module) -> dict[str, Tensor]:
    """The trained tensors; frozen ones (the base under LoRA) come from the model directory."""
    return {name: x for name, x in model.named_parameters() if x.requires_grad}


def _moments(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = {name: optimizer.state.get(x, {}) for name, x in _weights(model).items()}
    return {f"{key}/{name}": value for name, entry in state.items() for key, value in entry.items()}


@torch.no_grad()
def _set_weights(path: Path, weights: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    if saved.keys() != weights.keys() or any(saved[name].shape != x.shape for name, x in weights.items()):
        odd = sorted(saved.keys() ^ weights.keys()) or [n for n, x in weights.items() if saved[n].shape != x.shape]
        raise TokenPOError(f"{path} was saved from another model than the recipe names: {odd[0]} does not fit")
    for name, x in weights.items():
        x.copy_(saved[name])


def _set_moments(model: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    weights, by_name = _weights(model), dict[str, dict[str, Tensor]]()
    for label, value in saved.items():
        key, _, name = label.partition("/")
        by_name.setdefault(name, {})[key] = value
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    place = {parameter: i for i, parameter in enumerate(order)}
    state = {place[x]: by_name[name] for name, x in weights.items() if name in by_name}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _found(directory: Path) -> list[Path]:
    """All checkpoint directories, newest first."""
    folder = directory / "checkpoints"
    paths = [path for pattern in ("step-*", ".old-step-*") for path in folder.glob(pattern) if _step(path) >= 0]
    return sorted(paths, key=lambda path: (_step(path), path.name), reverse=True)


def _step(path: Path) -> int:
    number = path.name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else -1


def _is_whole(path: Path) -> bool:
    sums = json_object(path / _SUMS)
    try:
        return "state.json" in sums and all(_checksum(path / name) == value for name, value in sums.items())
    except OSError:
        return False


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

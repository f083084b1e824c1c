"""The final model of a run, model/. It records the checkpoint that it is of, so that no older model can pass for it."""

from __future__ import annotations

from pathlib import Path

from .. import models as language
from ..models.directory import trained
from . import checkpoint


def save(run: Path, lm: language.LanguageModel, step: int) -> None:
    """Writes model/, with the step of the checkpoint that it is of and the checksum of the weights there.

    Raises:
        OSError, SafetensorError: the disk is full, or worse.
    """
    language.save(lm, run / "model", _record(run, step))


def is_there(run: Path, step: int) -> bool:
    """Whether model/ is of the checkpoint of this step."""
    return trained(run / "model") == _record(run, step)


def is_owed(run: Path, step: int) -> bool:
    """Whether there is a checkpoint of this step, but no model/ that is of it."""
    return checkpoint.weights(run, step) is not None and not is_there(run, step)


def _record(run: Path, step: int) -> dict[str, object]:
    return {"step": step, "weights": checkpoint.weights(run, step)}

"""What an objective remembers from step to step, beside verl's checkpoint: JSON, nothing pickled."""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig

from ...base.errors import TokenPOError
from ...core.objective import Objective, State

FILE = "tokenpo.json"


def folder(config: DictConfig, step: int, *, resumed: bool = False) -> Path:
    """Of verl's checkpoint after this step."""
    trainer = config.trainer
    if resumed and trainer.resume_mode == "resume_path":
        return Path(trainer.resume_from_path)
    return Path(trainer.default_local_dir) / f"global_step_{step}"


def save(path: Path, objective: Objective, state: State, updates: int) -> None:
    """Writes the file before verl's own, so that a checkpoint that verl calls complete has it."""
    path.mkdir(parents=True, exist_ok=True)
    memory = [dict(state[memory]) for memory in objective.memories]
    record = {"objective": str(objective), "memory": memory, "updates": updates}
    (path / FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def load(path: Path, objective: Objective) -> tuple[State, int]:
    """What the memories held, and the optimiser steps that key an objective's draws.

    Raises:
        TokenPOError: the objective remembers, and the checkpoint holds nothing that fits.
    """
    try:
        record = json.loads((path / FILE).read_text(encoding="utf-8"))
        saved_objective, numbers, updates = record["objective"], record["memory"], int(record["updates"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if not objective.memories:
            return objective.start(), 0
        raise TokenPOError(
            f"{path / FILE} cannot be read ({error}), and {objective.name} needs what it remembered: resume from a "
            "checkpoint that tokenpo wrote, or start anew with trainer.resume_mode=disable"
        ) from error
    if saved_objective != str(objective):
        if objective.memories:
            raise TokenPOError(
                f"{path} was saved with another objective, whose memory means nothing to this one:\n{saved_objective}\n"
                f"now:\n{objective}\nresume with the same method and options, or start anew with "
                "trainer.resume_mode=disable"
            )
        print(f"tokenpo: the checkpoint {path} was made with another objective:\n{saved_objective}", flush=True)
        return objective.start(), updates
    return dict(zip(objective.memories, numbers, strict=True)), updates


def metrics(state: State) -> Mapping[str, float]:
    """The numbers that the memories hold, for verl's log."""
    return {
        f"tokenpo/{type(memory).__name__}/{name}": float(value)
        for memory, numbers in state.items()
        for name, value in numbers.items()
        if isinstance(value, int | float)
    }

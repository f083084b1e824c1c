"""Recipes that TRL trains, on the processor or beside it.

device_run.py cpu|standin OUT METHOD...
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from accelerate import PartialState
from transformers import TrainingArguments

from device.stand_in import DEVICE, NAME, stand_in
from tokenpo.engines.trl.main import main

# An eps that is large beside gradients: AdamW by itself makes whole steps of rounding.
SMALL = (
    "train.steps=2", "train.eps=1", "train.lr=0.05", "rollout.prompts=4", "evaluate.every=0", "evaluate.problems=0",
    "output.checkpoint_every=0", "output.rollouts_every=0",
)  # fmt: skip


def chosen(arguments: TrainingArguments) -> object:
    """What accelerate and transformers would find on a machine that has the device."""
    _ = arguments._setup_devices
    return DEVICE


def run(where: str, out: Path, methods: list[str]) -> None:
    if where == NAME:
        PartialState.default_device = property(lambda state: DEVICE)
        TrainingArguments.device = property(chosen)
    with stand_in() if where == NAME else contextlib.nullcontext():
        for method in methods:
            device = f"model.device={'cpu' if where == 'cpu' else 'auto'}"
            told = [part for setting in (*SMALL, device) for part in ("--set", setting)]
            assert main(["quickstart", "--method", method, "--out", str(out / method), *told]) == 0


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

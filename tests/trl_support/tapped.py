"""A trainer that remembers what it saw, and a callback that writes weights and gradients down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from transformers import TrainerCallback

from tokenpo.engines.trl.trainer import TokenPOTrainer

BACKEND = {"ddp_backend": "gloo"} if int(os.environ.get("WORLD_SIZE", "1")) > 1 else {}


class Tapped(TokenPOTrainer):
    """Remembers the rows and the loss of every micro-batch."""

    seen: list[dict[str, Any]]
    batches: Any

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        if self.model.training:
            seen = {"step": self.state.global_step, "rows": inputs["tokenpo_row"].tolist(), "loss": float(loss)}
            self.seen.append(seen)
        return loss


class Dump(TrainerCallback):
    """Weights and gradients just before an update."""

    def __init__(self, trainer: Any, directory: Path) -> None:
        self.trainer, self.directory = trainer, directory

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.trainer.accelerator.is_main_process:
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        tensors = {f"weight/{n}": x.detach().clone() for n, x in model.named_parameters()}
        tensors |= {f"grad/{n}": x.grad.clone() for n, x in model.named_parameters()}
        save_file(tensors, self.directory / f"step{state.global_step}.safetensors")

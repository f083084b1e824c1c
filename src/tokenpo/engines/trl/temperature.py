"""The temperature of a draw of TRL's: one for every token, or the method's own rule, by whatever samples."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .heat import Generated, Heat
from .served import Served


class Temperature(Protocol):
    """Of one draw, from before it to what is known of it afterwards; made anew for each."""

    def sampling(self) -> AbstractContextManager[None]:
        """While it lasts, TRL samples at this temperature."""
        ...

    def tokens(self, output: Mapping[str, Any]) -> Tensor:
        """[M, T] at which each token of TRL's output was sampled; asked once, after `sampling`."""
        ...

    def check(self, facts: Mapping[str, Tensor]) -> None:
        """Raises Unsupported where the facts [M, T] of the draw show another temperature; asked after `tokens`."""
        ...


@dataclass(frozen=True)
class Constant:
    """TRL's own: `base` for every token."""

    base: float

    def sampling(self) -> AbstractContextManager[None]:
        return nullcontext()

    def tokens(self, output: Mapping[str, Any]) -> Tensor:
        return torch.full(output["completion_ids"].shape, self.base, device=output["completion_ids"].device)

    def check(self, facts: Mapping[str, Tensor]) -> None:
        """TRL sets it itself."""


def of_draw(trainer: Any) -> Temperature:
    """The method's rule where it has one and the trainer trains; evaluations are drawn at the constant."""
    base, objective, state = float(trainer.temperature), trainer.policy_objective, trainer.memory
    adaptive = objective.temperature
    if adaptive is None or not trainer.model.training:
        return Constant(base)
    if not trainer.use_vllm:
        heat = Heat(functools.partial(adaptive, numbers=state[adaptive]), base)
        return Generated(heat, trainer.accelerator.unwrap_model(trainer.model_wrapped))
    # vLLM draws the first rollout batch at one temperature: there are no numbers to send it yet.
    return Served(trainer, objective, state, base) if state[adaptive] else Constant(base)

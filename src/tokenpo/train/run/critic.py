"""A value head on the language model: its value before every token, and its training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import NotFinite
from ...core.head.softmax import wide
from ...core.ops.masked import unpacked
from ...core.update import Update
from ..models import LanguageModel
from ..recipe import config


class ValueHead(torch.nn.Module):
    """V = w · h + b, where h is the final hidden state that predicts a token; float32 at least; 0 before training.

    Attributes:
        batches: number of rollout batches that it was trained on.
    """

    batches: Tensor

    def __init__(self, lm: LanguageModel) -> None:
        super().__init__()
        zeros = {"dtype": wide(lm.model.dtype), "device": lm.device}
        width = lm.model.get_output_embeddings().weight.shape[1]
        self.weight, self.bias = (torch.nn.Parameter(torch.zeros(shape, **zeros)) for shape in ((width,), ()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, hidden: Tensor) -> Tensor:
        """[M] from [M, H]."""
        return hidden.to(self.weight.dtype) @ self.weight + self.bias


@dataclass(frozen=True)
class Critic:
    """A value head, its optimiser and its settings."""

    head: ValueHead
    optimizer: torch.optim.Optimizer
    options: config.Critic

    @staticmethod
    def of(options: config.Critic, lm: LanguageModel) -> Critic:
        head = ValueHead(lm)
        # Adam moves every weight by about lr. With lr / H for w, the bias learns the level of V, not H weights at once.
        weight = {"params": [head.weight], "lr": options.lr / len(head.weight)}
        return Critic(head, torch.optim.Adam([weight, {"params": [head.bias]}], lr=options.lr), options)

    @property
    def alone(self) -> bool:
        """Whether the next rollout batch belongs to the warm-up, which trains only the critic."""
        return int(self.head.batches) < self.options.warmup

    def loss(self, update: Update, rows: Tensor, hidden: Tensor) -> Tensor:
        """The critic's loss on some rows of an update; hidden [M, H] are the states that predict their tokens."""
        mask = update.of(rows)[0].mask
        value = self.head(hidden if self.options.shared else hidden.detach())
        return update.value_loss(unpacked(value, mask), rows).value

    def check(self) -> None:
        """Raises NotFinite if the gradient is not finite."""
        norm = float(torch.nn.utils.get_total_norm([x.grad for x in self.head.parameters() if x.grad is not None]))
        if not math.isfinite(norm):
            raise NotFinite(f"the norm of the critic's gradient is {norm}")

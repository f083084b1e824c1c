"""Adaptive temperature on transformers' generation: a logits processor in front of its constant temperature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import LogitsProcessor, LogitsProcessorList

from ...core.ops.softmax import entropy_of, softmax_parts
from ...models.token_draw import TemperatureRule
from .contract import moved


class Heat(LogitsProcessor):
    """Scales the logits so that, divided by the base temperature afterwards, they are at the rule's temperature.

    Args:
        rule: temperature of the next token from the entropy of its logits at the base temperature.
        base: what generation divides by.
    """

    def __init__(self, rule: TemperatureRule, base: float) -> None:
        self.rule, self.base = rule, base
        self._steps: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Logits [M, V] of one step; remembers its temperatures [M]."""
        entropy = entropy_of(softmax_parts(scores, 1.0 / self.base))
        temperature = self.rule(entropy, self.base)
        self._steps.append(temperature.float())
        return scores * (self.base / temperature.to(scores.dtype))[:, None]

    def recorded(self, rows: int, width: int) -> Tensor:
        """[rows, width] temperature of every token of the responses, the base one behind their end."""
        if not self._steps or any(len(step) != rows for step in self._steps):
            raise moved("transformers' generation was not called once on the rows of a rollout batch")
        temperatures = torch.stack(self._steps, dim=1)[:, :width]
        return pad(temperatures, (0, width - temperatures.shape[1]), value=self.base)


@dataclass(frozen=True)
class Generated:
    """The adaptive temperature of one draw by transformers' generation.

    Args:
        heat: fresh, of this draw alone.
        model: whose `generate` TRL calls.
    """

    heat: Heat
    model: Any

    def sampling(self) -> AbstractContextManager[None]:
        return heated(self.model, self.heat)

    def tokens(self, output: Mapping[str, Any]) -> Tensor:
        return self.heat.recorded(*output["completion_ids"].shape).to(output["completion_ids"].device)

    def check(self, facts: Mapping[str, Tensor]) -> None:
        """It was recorded while it was applied."""


@contextmanager
def heated(model: Any, heat: Heat) -> Iterator[None]:
    """While it lasts, `model.generate` samples with `heat`: TRL hands generate no logits processor of its own."""
    before, original = vars(model).get("generate"), model.generate

    def generate(*args: Any, logits_processor: Any = None, **named: Any) -> Any:
        return original(*args, logits_processor=LogitsProcessorList([*(logits_processor or ()), heat]), **named)

    model.generate = generate
    try:
        yield
    finally:
        if before is None:
            del model.generate
        else:
            model.generate = before

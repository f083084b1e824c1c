"""Running a model forward token by token for a shrinking batch of rows."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from tokenpo.lm.model import LanguageModel


class Decoder(Protocol):
    """Rows of prompts in progress."""

    logits: Tensor
    """[N, V] of the first token of every row."""

    def step(self, token: Tensor) -> Tensor:
        """Appends `token` [M] to the M rows that are left; logits [M, V] of the next."""
        ...

    def keep(self, going: Tensor, ended: Tensor) -> Tensor:
        """Drops rows that ended; returns the order [M'] in which the others now stand."""
        ...


def open_decoder(lm: LanguageModel, prompts: Sequence[Sequence[int]], group_size: int, max_new: int) -> Decoder:
    """Runs every prompt once and repeats it `group_size` times."""
    return CacheDecoder(lm, prompts, group_size)


class CacheDecoder:
    """Any causal LM through Hugging Face's own cache classes, prompts padded on the left."""

    def __init__(self, lm: LanguageModel, prompts: Sequence[Sequence[int]], group_size: int) -> None:
        device, self.model = lm.device, lm.model
        ids, self.seen = left_padded(prompts, lm.pad_id, device)
        self.cache = DynamicCache(config=self.model.config)
        self.accepts = set(inspect.signature(self.model.forward).parameters)
        position = (self.seen.cumsum(1) - 1).clamp(min=0)
        self.logits = self._forward(ids, position).repeat_interleave(group_size, 0)
        self.cache.batch_repeat_interleave(group_size)
        self.seen = self.seen.repeat_interleave(group_size, 0)
        self.position = position[:, -1].repeat_interleave(group_size)

    def step(self, token: Tensor) -> Tensor:
        self.position = self.position + 1
        self.seen = torch.cat([self.seen, self.seen.new_ones(len(token), 1)], 1)
        return self._forward(token.unsqueeze(1), self.position.unsqueeze(1))

    def keep(self, going: Tensor, ended: Tensor) -> Tensor:
        self.cache.batch_select_indices(going)
        self.seen, self.position = self.seen[going], self.position[going]
        return going

    def _forward(self, ids: Tensor, position: Tensor) -> Tensor:
        options: dict[str, Any] = {"attention_mask": self.seen, "position_ids": position, "logits_to_keep": 1}
        options = {name: value for name, value in options.items() if name in self.accepts}
        return self.model(input_ids=ids, past_key_values=self.cache, use_cache=True, **options).logits[:, -1]


def left_padded(prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids [P, L] with padding on the left, and the mask [P, L] int64 of what is not padding."""
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device).unsqueeze(1)
    seen = torch.arange(longest, device=device) >= longest - lengths
    return ids, seen.long()

"""One decoding step whose tensors keep their addresses, so that a CUDA graph can record it (`graphed`).

Keys and values have a fixed number of slots, and a bias hides the empty ones. The device counts the slot to write to
and the number of the step. Sampled tokens and their statistics are stored for `BLOCK` steps.

Axes: N rows at the start, M rows of a step, S slots that it attends to, V vocabulary, D head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .decoder import PackedDecoder, fill_holes
from .packed import attention, packed_logits
from .token_draw import draw, greedy, uniforms_at

# Steps between two waits for the device.
BLOCK = 16


class FixedStep:
    """A decoding step, and the `Packing` that its layers use.

    Args:
        first: the decoder that holds the prompts' keys and values.
        rows, slots: largest numbers of rows and slots in any step.
    """

    def __init__(self, first: PackedDecoder, rows: int, slots: int) -> None:
        keys, dtype = first.keys[0], _cache_dtype(first.keys[0])
        self.rows, self.slots = rows, slots
        self.keys, self.values = (
            {i: x.new_zeros(rows, x.shape[1], slots, x.shape[3], dtype=dtype) for i, x in layers.items()}
            for layers in (first.keys, first.values)
        )
        self.bias = keys.new_zeros(rows, slots, dtype=dtype)
        # Each row's last token, its position and its random stream.
        self.token, self.position, self.stream = first.position.new_zeros(3, rows)
        # The slot to write to and the number of the token to draw.
        self.slot, self.step = first.position.new_zeros(2, 1)
        self.tokens = first.position.new_zeros(BLOCK, rows)
        self.logprob, self.entropy = keys.new_zeros(2, BLOCK, rows, dtype=torch.float32)
        self.window = rows, slots

    @property
    def caches(self) -> list[Tensor]:
        return [*self.keys.values(), *self.values.values()]

    def load(self, first: PackedDecoder, stream: Tensor) -> None:
        """Starts N rows after their prompts. Zeroes other rows and empty slots, as no bias would hide a NaN there."""
        n, length = len(stream), first.filled
        for caches, prompts in ((self.keys, first.keys), (self.values, first.values)):
            for layer, x in prompts.items():
                caches[layer].zero_()[:n, :, :length] = x[:, :, :length]
        self.bias.fill_(float("-inf"))[:n, :length] = 0
        if first.padding is not None:
            self.bias[:n, :length].masked_fill_(first.padding, float("-inf"))
        for own, start in ((self.position, first.position), (self.stream, stream)):
            own.zero_()[:n] = start
        self.slot.fill_(length)
        self.step.zero_()

    def run(self, model: Any, temperature: float) -> Tensor:
        """Makes one step: appends each row's token and samples the next; returns the logits [M, V]."""
        m = self.window[0]
        self.position.add_(1)
        if (positions := getattr(model.config, "max_position_embeddings", None)) is not None:
            self.position.clamp_(max=positions - 1)  # for rows that have ended
        self.bias.index_fill_(1, self.slot, 0)
        with _without_cached_casts(self.token.device.type):
            logits = packed_logits(model, self.token[:m], self.position[:m], self)
        self.slot.add_(1)
        self.draw(logits, temperature)
        return logits

    def draw(self, logits: Tensor, temperature: float) -> None:
        """Samples each row's next token from logits [M, V] and stores it."""
        m = len(logits)
        if temperature == 0:
            drawn = greedy(logits)
        else:
            drawn = draw(logits, uniforms_at(self.stream[:m], self.step), temperature)
        self.token[:m] = drawn.token
        place = self.step % BLOCK
        for table, x in ((self.tokens, drawn.token), (self.logprob, drawn.logprob), (self.entropy, drawn.entropy)):
            table[:, :m].index_copy_(0, place, x.to(table.dtype).unsqueeze(0))
        self.step.add_(1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float) -> Tensor:
        m, s = self.window
        keys, values = self.keys[layer][:m], self.values[layer][:m]
        for cache, x in ((keys, k), (values, v)):
            cache.index_copy_(2, self.slot, x.unsqueeze(2).to(cache.dtype))
        bias = self.bias[:m, None, None, :s]
        q = q.unsqueeze(2).to(bias.dtype)
        return attention(q, keys[:, :, :s], values[:, :, :s], bias, scale, dropout).squeeze(2)

    def keep(self, going: Tensor, ended: Tensor) -> Tensor:
        """As `PackedDecoder.keep`."""
        return fill_holes([*self.caches, self.bias, self.token, self.position, self.stream], going, ended)

    def moving(self) -> list[Tensor]:
        """The tensors that a step reads and then changes."""
        return [self.token, self.position, self.slot, self.step]


def _cache_dtype(keys: Tensor) -> torch.dtype:
    """The dtype in which attention multiplies."""
    kind = keys.device.type
    cast = torch.is_autocast_enabled(kind) and keys.dtype != torch.float64
    return torch.get_autocast_dtype(kind) if cast else keys.dtype


def _without_cached_casts(kind: str) -> torch.autocast:
    """The current autocast, but casting the weights anew in every step, as they change between replays."""
    on = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), enabled=on, cache_enabled=False)

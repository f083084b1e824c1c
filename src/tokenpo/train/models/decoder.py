"""Runs a model token by token on a shrinking batch of rows.

Axes: P prompts of at most L tokens, N rows at the start, M remaining rows, V vocabulary, D head size.
"""

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from ...base.errors import NotFinite, Unsupported
from .model import LanguageModel, Prompts, positions
from .packed import attention, packed_logits
from .token_draw import Draw

# Response slots of the cache at first; doubled when they are full.
_SLOTS = 64


class Step(NamedTuple):
    """One step of M rows.

    Args:
        rows: [M] number of the response in each row.
        alive: [M] bool, the response had not ended before this step.
        drawn: the sampled tokens and their statistics.
        ended: [M] bool, an EOS was sampled.
        token: [M] the next token of each response.
        sampled: [M] bool, the token was sampled; false where a tool inserted it.
    """

    rows: Tensor
    alive: Tensor
    drawn: Draw
    ended: Tensor
    token: Tensor
    sampled: Tensor


def not_finite(step: int, row: int, n: int) -> NotFinite:
    """The error for logits from which no token can be sampled."""
    return NotFinite(
        f"the model's logits hold NaN or an infinity at token {step} of response {row} of {n}: its weights are "
        "broken, or its numbers too large for model.dtype",
        row,
    )


class PackedDecoder:
    """Decodes with a key-value cache in growing buffers, written in place; a step runs M tokens as one packed row.

    Prompts are padded on the left, so that a step writes the same slot in every row. The last remaining rows overwrite
    dropped rows, so that only as many rows are copied as were dropped, and not the whole cache.

    Attributes:
        logits: [N, V], the predictions of every row's first token.
    """

    def __init__(self, lm: LanguageModel, prompts: Prompts, group_size: int, max_new: int) -> None:
        self.model, self.group_size = lm.model, group_size
        ids, attended = left_padded(prompts, lm.pad_id, lm.device)
        self.shape, self.filled = ids.shape, 0
        self.room = ids.shape[1] + max_new
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        position = (attended.cumsum(1) - 1).clamp(min=0)
        self.position = position[:, -1].repeat_interleave(group_size)
        self.bias = self._prompt_bias(attended)
        last = torch.arange(1, len(ids) + 1, device=ids.device) * ids.shape[1] - 1
        logits = packed_logits(self.model, ids.flatten(), position.flatten(), self, last)
        self.filled = ids.shape[1]
        padding = (attended == 0).repeat_interleave(group_size, 0)
        # Without padding a step sees every filled slot and needs no mask.
        self.padding = padding if bool(padding.any()) else None
        self.logits = logits.repeat_interleave(group_size, 0)

    def step(self, token: Tensor) -> Tensor:
        """Appends `token` [M] to the remaining rows; returns the logits [M, V] of the next token."""
        self.position = _next(self.position, self.model)
        self.bias = self._step_bias(len(token))
        logits = packed_logits(self.model, token, self.position, self)
        self.filled += 1
        return logits

    def keep(self, going: Tensor, ended: Tensor) -> Tensor:
        """Keeps the rows `going` [M'] (ascending) and drops those where `ended` [M] is true.

        Returns:
            [M'] old place of each remaining row, in the new order.
        """
        buffers = [*self.keys.values(), *self.values.values(), *([] if self.padding is None else [self.padding])]
        order = fill_holes(buffers, going, ended)
        self.position = self.position[order]
        return order

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float) -> Tensor:
        """Attention for the model's layers: over the prompts while the cache is empty, then over one step."""
        if self.filled == 0:
            rows, length = self.shape
            q, k, v = (x.reshape(rows, length, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
            self.keys[layer], self.values[layer] = self._buffer(k), self._buffer(v)
            return attention(q, k, v, self.bias, scale, dropout).transpose(1, 2).reshape(rows * length, q.shape[1], -1)
        m, end = q.shape[0], self.filled + 1
        keys, values = self._roomy(self.keys, layer, m), self._roomy(self.values, layer, m)
        keys[:m, :, self.filled] = k
        values[:m, :, self.filled] = v
        out = attention(q.unsqueeze(2), keys[:m, :, :end], values[:m, :, :end], self.bias, scale, dropout)
        return out.squeeze(2)

    def _buffer(self, x: Tensor) -> Tensor:
        """A new buffer [N, Hkv, slots, D] that holds the prompts' keys or values x [P, Hkv, L, D]."""
        rows, heads, length, d = x.shape
        slots = min(length + _SLOTS, self.room)
        buffer = x.new_empty(rows, self.group_size, heads, slots, d)
        buffer[:, :, :, :length] = x.unsqueeze(1)
        return buffer.view(rows * self.group_size, heads, slots, d)

    def _roomy(self, buffers: dict[int, Tensor], layer: int, m: int) -> Tensor:
        """The layer's buffer; if it is full, a larger one with only the M remaining rows takes its place."""
        old = buffers[layer]
        if self.filled == old.shape[2]:
            slots = min(2 * old.shape[2], self.room)
            buffers[layer] = old.new_empty(m, old.shape[1], slots, old.shape[3])
            buffers[layer][:, :, : self.filled] = old[:m]
        return buffers[layer]

    def _prompt_bias(self, attended: Tensor) -> Tensor:
        """[P, 1, L, L] causal bias that hides the padding; a padded query sees itself, to stay finite."""
        length = attended.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=attended.device).tril()
        allowed = (attended.bool().unsqueeze(1) & causal) | torch.eye(length, dtype=torch.bool, device=attended.device)
        return self._bias(~allowed)

    def _step_bias(self, m: int) -> Tensor | None:
        """[M, 1, 1, slots] bias that hides the padding of the prompts; None without padding."""
        if self.padding is None:
            return None
        visible = self.padding.new_zeros(m, self.filled + 1 - self.padding.shape[1])
        return self._bias(torch.cat([self.padding[:m], visible], 1).unsqueeze(1))

    def _bias(self, hidden: Tensor) -> Tensor:
        empty = torch.zeros(hidden.shape, dtype=self.model.dtype, device=hidden.device)
        return empty.masked_fill_(hidden, float("-inf")).unsqueeze(1)


def fill_holes(buffers: Iterable[Tensor], going: Tensor, ended: Tensor) -> Tensor:
    """Moves the rows `going` [M'] (ascending) of every buffer [>= M, ...] to its first M' rows.

    The last of them overwrite the rows where `ended` [M] is true; the others stay where they are.

    Returns:
        [M'] old place of each of the first M' rows.
    """
    remaining = len(going)
    order = torch.arange(remaining, device=going.device)
    holes = ended[:remaining].nonzero().squeeze(-1)
    if len(holes):
        movers = going[remaining - len(holes) :]
        order[holes] = movers
        for buffer in buffers:
            buffer.index_copy_(0, holes, buffer.index_select(0, movers))
    return order


class CacheDecoder:
    """As `PackedDecoder`, for any causal LM, with Hugging Face's own cache; prompts are padded on the left."""

    def __init__(self, lm: LanguageModel, prompts: Prompts, group_size: int, max_new: int) -> None:
        self.model = lm.model
        self.accepts = set(inspect.signature(self.model.forward).parameters)
        if "past_key_values" not in self.accepts:  # without its state every token would be the first one
            raise Unsupported(f"{type(self.model).__name__} keeps no key-value cache: set model.path to another model")
        ids, self.attended = left_padded(prompts, lm.pad_id, lm.device)
        self.cache: Any = DynamicCache(config=self.model.config)
        position = (self.attended.cumsum(1) - 1).clamp(min=0)
        self.logits = self._forward(ids, position).repeat_interleave(group_size, 0)
        # Layers with a recurrent state (Qwen3.5, LFM2) know no other way to choose rows.
        self.cache.reorder_cache(torch.arange(len(ids), device=ids.device).repeat_interleave(group_size))
        self.attended = self.attended.repeat_interleave(group_size, 0)
        self.position = position[:, -1].repeat_interleave(group_size)

    def step(self, token: Tensor) -> Tensor:
        self.position = _next(self.position, self.model)
        self.attended = torch.cat([self.attended, self.attended.new_ones(len(token), 1)], 1)
        return self._forward(token.unsqueeze(1), self.position.unsqueeze(1))

    def keep(self, going: Tensor, ended: Tensor) -> Tensor:
        self.cache.reorder_cache(going)
        self.attended, self.position = self.attended[going], self.position[going]
        return going

    def _forward(self, ids: Tensor, position: Tensor) -> Tensor:
        options: dict[str, Any] = {"attention_mask": self.attended, "position_ids": position, "logits_to_keep": 1}
        options = {name: value for name, value in options.items() if name in self.accepts}
        return self.model(input_ids=ids, past_key_values=self.cache, use_cache=True, **options).logits[:, -1]


def _next(position: Tensor, model: Any) -> Tensor:
    """The next positions; rows that have ended stay at the model's last one."""
    most = positions(model)
    return position + 1 if most is None else (position + 1).clamp(max=most - 1)


def left_padded(prompts: Prompts, pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids [P, L] padded on the left, and the attention mask [P, L] int64."""
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    attended = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    return ids, attended

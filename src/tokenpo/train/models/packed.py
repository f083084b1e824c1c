"""Runs a model on packed tokens: no padding in its linear layers, and each prompt's tokens once for its group.

transformers calls our registered attention function with the keywords passed to `forward`. The function gets queries,
keys and values of one long row [1, heads, S, D] of packed tokens; a `Packing` knows which of them attend to which. The
rest of the model (embedding, projections, norms, MLP, adapters) runs its own code on S tokens.

This works only if all layers attend causally to all earlier tokens. `can_pack` compares with the ordinary forward pass
once per model; if the results differ, callers use padded batches.

Axes: S packed tokens, B rows of one attention call, Q and K their padded queries and keys, D head size.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from ...base.errors import Unsupported
from ...core.head.projection import evaluating
from .model import LanguageModel, Prompts

_NAME = "tokenpo_packed"
# Up to this number of attention weights, two plain products are faster than the fused kernel on a CPU; with more they
# take too much memory.
_PLAIN_WEIGHTS = 2**24
_EXACT = torch.float32, torch.float64


class Packing(Protocol):
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float) -> Tensor:
        """Attention of packed q [S, Hq, D] to k, v [S, Hkv, D]; returns [S, Hq, D]."""
        ...


def run_packed(model: Any, ids: Tensor, position: Tensor, packing: Packing) -> Tensor:
    """Final hidden states [S, H] of packed tokens `ids` [S] at `position` [S]."""
    with _packed_attention(model.config):
        return model.base_model(**_inputs(ids, position), packing=packing).last_hidden_state[0]


def packed_logits(model: Any, ids: Tensor, position: Tensor, packing: Packing, keep: Tensor | None = None) -> Tensor:
    """Logits [S, V] of packed tokens; with `keep`, only those of the tokens at these places."""
    kept = 0 if keep is None else keep
    with _packed_attention(model.config):
        return model(**_inputs(ids, position), packing=packing, logits_to_keep=kept).logits[0]


def _inputs(ids: Tensor, position: Tensor) -> dict[str, Any]:
    return {"input_ids": ids.unsqueeze(0), "position_ids": position.unsqueeze(0), "use_cache": False}


def can_pack(lm: LanguageModel) -> bool:
    """Whether packed runs are exact for this model; probed once."""
    if lm.model.training and getattr(lm.model, "is_gradient_checkpointing", False):
        # Checkpointed layers run again in the backward pass, where our attention is no longer installed.
        return False
    if "packed" not in lm.abilities:
        lm.abilities["packed"] = _probe(lm)
    return lm.abilities["packed"]


class Rows:
    """Packs prompts, followed by responses in ascending length, each of which continues one of the prompts.

    Responses of similar length share an attention call.

    Args:
        prompts: token ids of the prompts in use.
        owner: [B] int64, each response's prompt.
        length: [B] int64 >= 0, number of tokens of each response to run.
    """

    def __init__(self, prompts: Prompts, owner: Tensor, length: Tensor) -> None:
        device = owner.device
        self.prompt_length = torch.tensor([len(p) for p in prompts], device=device)
        self.prompt_start = _starts(self.prompt_length)
        sizes, order = length.sort(stable=True)
        self.order = order
        start = torch.empty_like(length)
        start[order] = _starts(sizes) + self.prompt_length.sum()
        self.start = start
        columns = torch.arange(int(self.prompt_length.max()), device=device)
        inside = columns < self.prompt_length.unsqueeze(1)
        index = (self.prompt_start.unsqueeze(1) + columns) * inside
        self.blocks = [_Block(index, index, inside, inside.unsqueeze(1) & _causal(len(columns), device))]
        for low, high in _similar(sizes.tolist()):
            self.blocks.append(self._responses(order[low:high], owner, length))
        self.position = torch.cat([columns.expand_as(inside)[inside], *(block.position for block in self.blocks[1:])])

    def _responses(self, rows: Tensor, owner: Tensor, length: Tensor) -> _Block:
        """The attention call of some responses of similar length."""
        prompt, size = owner[rows], length[rows].unsqueeze(1)
        columns = torch.arange(int(size.max()), device=rows.device)
        inside = columns < size
        index = (self.start[rows].unsqueeze(1) + columns) * inside
        before = self.prompt_length[prompt].unsqueeze(1)
        prompt_columns = torch.arange(int(before.max()), device=rows.device)
        in_prompt = prompt_columns < before
        key = torch.cat([(self.prompt_start[prompt].unsqueeze(1) + prompt_columns) * in_prompt, index], 1)
        shape = (len(rows), len(columns), -1)
        causal = _causal(len(columns), rows.device).expand(shape)
        allowed = torch.cat([in_prompt.unsqueeze(1).expand(shape), causal], 2)
        return _Block(index, key, inside, allowed, (before + columns)[inside])

    def ids(self, prompts: Prompts, token_ids: Tensor, length: Tensor) -> Tensor:
        """[S] the packed token ids; `token_ids` [B, ·] are the responses in their original order."""
        flat = torch.tensor([i for prompt in prompts for i in prompt], device=token_ids.device)
        columns = torch.arange(token_ids.shape[1], device=token_ids.device)
        return torch.cat([flat, token_ids[self.order][columns < length[self.order].unsqueeze(1)]])

    def predictor(self, row: Tensor, column: Tensor, owner: Tensor) -> Tensor:
        """[M] packed place of the output that predicts token `column` of response `row`."""
        last = (self.prompt_start + self.prompt_length - 1)[owner[row]]
        return torch.where(column == 0, last, self.start[row] + column - 1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float) -> Tensor:
        return torch.cat([block.attend(q, k, v, scale, dropout) for block in self.blocks])


class _Block:
    """One attention call: rows of packed queries and keys, padded on the right."""

    def __init__(
        self, query: Tensor, key: Tensor, inside: Tensor, allowed: Tensor, position: Tensor | None = None
    ) -> None:
        self.query, self.key, self.inside, self.allowed = query, key, inside.flatten().nonzero().squeeze(-1), allowed
        self.position = position if position is not None else query.new_empty(0)
        self.bias: Tensor | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float) -> Tensor:
        b, n = self.query.shape
        if self.bias is None:
            self.bias = torch.zeros_like(self.allowed, dtype=q.dtype).masked_fill_(~self.allowed, float("-inf"))
        rows = self.query.flatten()
        picked = q.index_select(0, rows).view(b, n, *q.shape[1:]).transpose(1, 2)
        keys = k.index_select(0, self.key.flatten()).view(b, -1, *k.shape[1:]).transpose(1, 2)
        values = v.index_select(0, self.key.flatten()).view(b, -1, *v.shape[1:]).transpose(1, 2)
        out = attention(picked, keys, values, self.bias.unsqueeze(1), scale, dropout)
        return out.transpose(1, 2).reshape(b * n, *q.shape[1:]).index_select(0, self.inside)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, dropout: float) -> Tensor:
    """softmax(q kᵀ scale + bias) v for q [B, Hq, Q, D] and k, v [B, Hkv, K, D]; bias broadcasts to [B, 1, Q, K]."""
    b, heads, n, d = q.shape
    shared = k.shape[1]
    if bias is not None and bias.dtype != q.dtype:
        bias = bias.to(q.dtype)
    if q.device.type != "cpu" or b * heads * n * k.shape[2] > _PLAIN_WEIGHTS:
        if n == 1:
            # Query heads that share keys become several queries of one head.
            q = q.reshape(b, shared, heads // shared, d)
        elif bias is not None and heads != shared:
            # With a mask and shared keys, a GPU would use its slow plain kernel.
            k, v = (x.repeat_interleave(heads // shared, 1) for x in (k, v))
        gqa = q.shape[1] != k.shape[1]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale, enable_gqa=gqa)
        return out.reshape(b, heads, n, d)
    # Query heads that share keys become rows of one product, which saves copies of the keys.
    weight = (q * scale).reshape(b, shared, -1, d) @ k.transpose(2, 3)
    if bias is not None:
        weight = weight.view(b, heads, n, -1) + bias
    weight = weight.softmax(-1).view(b, shared, -1, k.shape[2])
    if dropout:
        weight = F.dropout(weight, dropout)
    return (weight @ v).view(b, heads, n, d)


def _forward(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, packing: Packing | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """The attention function that transformers calls; [1, H, S, D] in, [1, S, H, D] out."""
    odd = [name for name in ("sliding_window", "softcap", "s_aux", "position_bias") if options.get(name) is not None]
    if packing is None or attention_mask is not None or odd:
        raise Unsupported(f"packed attention does not know {odd or 'a foreign mask'}: use padded batches")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    return packing.attend(int(module.layer_idx), q, k, v, scale, dropout).unsqueeze(0), None  # pyright: ignore


AttentionInterface.register(_NAME, _forward)


@contextlib.contextmanager
def _packed_attention(config: Any) -> Iterator[None]:
    attention, pad = config._attn_implementation, getattr(config, "pad_token_id", None)
    config._attn_implementation = _NAME
    # With a padding id, some models search the tokens for padding, which waits for the device.
    config.pad_token_id = None
    try:
        yield
    finally:
        config._attn_implementation, config.pad_token_id = attention, pad


def _probe(lm: LanguageModel) -> bool:
    """Whether packed logits agree with ordinary ones, on three short responses to two prompts."""
    model, device = lm.model, lm.device
    if not getattr(model, "_supports_attention_backend", False) or _sees_only_some(model.config):
        return False
    if model.dtype not in _EXACT:
        # In half precision a deep model's rounding exceeds every useful tolerance.
        model = copy.deepcopy(model).float()
    vocabulary = model.get_input_embeddings().weight.shape[0]
    prompts = [[i * 7 % vocabulary for i in range(1, 5)], [i * 5 % vocabulary for i in range(1, 3)]]
    responses = torch.tensor([[3, 1, 4], [1, 5, 9], [2, 6, 5]], device=device) % vocabulary
    owner, length = torch.tensor([0, 1, 1], device=device), torch.tensor([3, 2, 3], device=device)
    rows = Rows(prompts, owner, length)
    with evaluating(model):
        try:
            packed = packed_logits(model, rows.ids(prompts, responses, length), rows.position, rows).float()
        except (Unsupported, TypeError, AttributeError, KeyError, RuntimeError, ValueError):
            return False
        for row in range(3):
            text = torch.tensor([*prompts[int(owner[row])], *responses[row].tolist()], device=device)
            plain = model(input_ids=text.unsqueeze(0), use_cache=False).logits[0].float()
            columns = torch.arange(int(length[row]) + 1, device=device)
            found = packed[rows.predictor(torch.full_like(columns, row), columns, owner)]
            expected = plain[len(prompts[int(owner[row])]) - 1 :][: len(columns)]
            if not (found - expected).abs().max() <= 1e-4 * expected.abs().max():
                return False
    return True


def _sees_only_some(config: Any) -> bool:
    """Whether a layer does not attend to all earlier tokens.

    Some models (PhiMoE, Qwen2-MoE, Llama 4) express this only by the mask, which a packed run does not use, and the
    probe's texts are shorter than any window.
    """
    config = config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None)
    return any(kind != "full_attention" for kind in kinds) if kinds else bool(getattr(config, "sliding_window", None))


def _starts(sizes: Tensor) -> Tensor:
    return sizes.cumsum(0) - sizes


def _causal(n: int, device: torch.device) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def _similar(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """(first, end) of ranges of ascending sizes that need little padding; rows of size 0 are left out."""
    low = sum(size == 0 for size in sizes)
    for i in range(low, len(sizes)):
        if sizes[i] > 1.5 * sizes[low] + 8:
            yield low, i
            low = i
    if low < len(sizes):
        yield low, len(sizes)

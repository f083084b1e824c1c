"""The output embedding, forward and backward: logits of some rows, and gradients from the residual of their softmax.

Axes: M rows (tokens), H hidden size, V vocabulary.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .kept import keep_only_
from .softmax import part, scaled, wide

# Bytes of logits per chunk. The float32 sum of the head's gradient is read and written once per chunk, so on a GPU few
# large chunks are faster: a share of the card's total memory (not of its free memory, as the order of sums depends on
# the chunks), at most that of an H100, above which no more time is saved.
_CHUNK_BYTES, _GPU_CHUNK_BYTES, _CARD_SHARE, _CARD_MOST = 2**24, 2**30, 32, 5 * 2**29
# With fewer rows, reading the head and its gradient takes longer than the products.
_LEAST_CHUNK_ROWS = 512
# Entries per step where the head's gradient is added in another dtype, and where logits are moved.
_TILE, _GPU_TILE = 2**19, 2**24


def chunk_rows(vocabulary: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> int:
    """Number of rows of logits [·, V] in a chunk, at least 512: 16 MB, or on a GPU a 32nd of its memory up to 2.5 GiB.

    A device of None gives the CPU's small chunk, for callers that hold several tensors of this size.
    """
    if device is None or device.type == "cpu":
        size = _CHUNK_BYTES
    elif device.type == "cuda":
        size = min(torch.cuda.get_device_properties(device).total_memory // _CARD_SHARE, _CARD_MOST)
    else:
        size = _GPU_CHUNK_BYTES
    return max(_LEAST_CHUNK_ROWS, size // (vocabulary * dtype.itemsize))


def same_dtype(hidden: Tensor, head: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """All three tensors in one dtype: autocast's if it is enabled, else the wider of hidden's and head's."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    else:
        dtype = torch.promote_types(hidden.dtype, head.dtype)
    return hidden.to(dtype), head.to(dtype), None if bias is None else bias.to(dtype)


def logits_of(
    hidden: Tensor, head: Tensor, bias: Tensor | None, out: Tensor | None = None, kept: Tensor | None = None
) -> Tensor:
    """hidden [M, H] headᵀ [H, V] + bias [V], without graph; written to the first M rows of `out` if that is given.

    With `kept` [M, K], they are -inf outside these ids (`head.kept`).
    """
    out = part(out, slice(len(hidden)))
    product = torch.mm(hidden, head.t(), out=out) if bias is None else torch.addmm(bias, hidden, head.t(), out=out)
    return product if kept is None else keep_only_(product, kept)


@dataclass(eq=False)
class HeadGradient:
    """Running sums of the gradients to hidden states [M, H], head [V, H] and bias [V]; None for one not needed.

    The head's is at least float32, or in the head's dtype if a single product computes it. If `blank`, it is
    uninitialised and the first product is written rather than added.
    """

    hidden: Tensor | None
    head: Tensor | None
    bias: Tensor | None
    blank: bool

    @staticmethod
    def start(
        hidden: Tensor,
        head: Tensor,
        bias: Tensor | None,
        wanted: Sequence[bool],
        *,
        every: bool = False,
        once: bool = False,
    ) -> HeadGradient:
        """The sums before the first gradient, for those of hidden, head and bias that are wanted.

        If `every` row will be added, `hidden` need not be zeroed; if at `once`, `head` needs no wider dtype.
        """
        return HeadGradient(
            (torch.empty_like(hidden) if every else torch.zeros_like(hidden)) if wanted[0] else None,
            torch.empty_like(head, dtype=head.dtype if once else wide(head.dtype)) if wanted[1] else None,
            torch.zeros_like(bias, dtype=wide(bias.dtype)) if bias is not None and wanted[2] else None,
            blank=True,
        )

    def settle(self) -> None:
        """Zeroes `head` if nothing was added to it."""
        if self.blank and self.head is not None:
            self.head.zero_()
        self.blank = False

    def like(self, hidden: Tensor, head: Tensor, bias: Tensor | None) -> tuple[Tensor | None, ...]:
        self.settle()
        pairs = ((self.hidden, hidden), (self.head, head), (self.bias, bias))
        return tuple(None if x is None or y is None else x.to(y.dtype) for x, y in pairs)

    def add(self, at: slice | Tensor, w: Tensor, factor: Tensor, hidden: Tensor, head: Tensor, *, spend: bool) -> None:
        """Adds what follows from factor · w [M', V], the gradient to the logits of the rows `at` (`softmax.ascent`).

        `hidden` [M', H] are the hidden states of the rows; `spend` allows to overwrite w.
        """
        f: Tensor | None = factor
        if w.shape[1] < 2 * hidden.shape[1]:
            # Scaling w costs less than scaling both the hidden states and their gradient.
            w, f = scaled(w, factor, spend=spend), None
        if self.bias is not None:
            self.bias += w.sum(0, dtype=self.bias.dtype) if f is None else (f.to(w.dtype).t() @ w)[0]
        if self.hidden is not None:
            gradient = torch.mm(w, head, out=part(self.hidden, at) if isinstance(at, slice) else None)
            if f is not None:
                gradient.mul_(f)
            if isinstance(at, Tensor):
                self.hidden.index_copy_(0, at, gradient)
        if self.head is not None:
            _add_product(self.head, w.t(), hidden if f is None else (hidden * f).to(w.dtype), blank=self.blank)
            self.blank = False


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, blank: bool) -> None:
    """total [V, H] += a [V, M] b [M, H], or = if `blank`."""
    beta = 0 if blank else 1
    if total.dtype == a.dtype:
        torch.addmm(total, a, b, beta=beta, out=total)
        return
    if _adds_wide(a.device, a.dtype, total.dtype):
        torch.addmm(total, a, b, out_dtype=total.dtype, beta=beta, out=total)
        return
    # Two buffers serve all tiles: new ones cost page faults, and a sum of two dtypes would allocate its own.
    rows = tile_rows(total)
    product = a.new_empty(min(rows, len(a)), b.shape[1])
    wider = torch.empty_like(product, dtype=total.dtype)
    for start in range(0, len(a), rows):
        part = a[start : start + rows]
        torch.mm(part, b, out=product[: len(part)])
        if blank:
            total[start : start + rows].copy_(product[: len(part)])
        else:
            total[start : start + rows] += wider[: len(part)].copy_(product[: len(part)])


@functools.cache
def _adds_wide(device: torch.device, narrow: torch.dtype, wider: torch.dtype) -> bool:
    """Whether torch can add a half-precision product to a wider sum on the device; newer versions can on CUDA."""
    a, total = torch.ones(16, 24, dtype=narrow, device=device), torch.full((24, 24), torch.nan, device=device)
    total = total.to(wider)
    try:
        for beta in (0, 1):
            torch.addmm(total, a.t(), a, out_dtype=wider, beta=beta, out=total)
    # torch has no such argument, or does not support it on this device.
    except (TypeError, RuntimeError):
        return False
    return bool((total == 32).all())


def tile_rows(x: Tensor) -> int:
    """Number of rows of x [·, H] or [·, V] to process at a time."""
    tile = _TILE if x.device.type == "cpu" else _GPU_TILE
    return max(1, tile // x[0].numel())


def keep_rows_(w: Tensor, rows: Tensor) -> None:
    """Moves w[rows] for ascending `rows` to the top of w [M, V]."""
    step = tile_rows(w)
    for start in range(0, len(rows), step):
        # Rows only move up, so none is overwritten before it is read. `w[block]` would copy number by number.
        block = rows[start : start + step]
        w[start : start + len(block)] = w.index_select(0, block)


def probe_head(model: Any) -> bool:
    """Whether a causal LM's logits are exactly head(hidden), without soft cap or scale, by a pass over a few tokens."""
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or model.base_model is model or "forward" in vars(head):
        return False
    device = head.weight.device
    ids = torch.arange(8, device=device).unsqueeze(0) % head.weight.shape[0]
    inputs = inputs_of(model, ids, torch.ones_like(ids))
    with evaluating(model), torch.autocast(device.type, enabled=False):
        body = model.base_model(**inputs)
        hidden = getattr(body, "last_hidden_state", None)
        # Compared bit by bit, as a soft cap hardly changes small logits; a false alarm only costs speed.
        return hidden is not None and torch.equal(head(hidden), model(**inputs).logits)


def inputs_of(model: Any, ids: Tensor, attended: Tensor) -> dict[str, Any]:
    """The keywords for a forward pass over ids [P, T] without a cache, as far as the model takes them."""
    inputs = {"input_ids": ids, "attention_mask": attended, "use_cache": False}
    accepted = inspect.signature(model.forward).parameters
    return {name: value for name, value in inputs.items() if name in accepted}


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Runs the block in eval mode without gradients, then restores the mode."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()

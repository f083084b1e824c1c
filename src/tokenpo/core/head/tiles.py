"""The head, one tile of the vocabulary at a time: least memory, for one more matrix product.

A running softmax gives the statistics; the backward pass computes each tile of logits again. At most a block of tokens
x a tile of the vocabulary exists at a time.

Axes: M rows (tokens), H hidden size, V vocabulary; k rows of a block, t columns of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .projection import HeadGradient, logits_of
from .softmax import FLOOR, LN2, RowStats, ascent, part, sums_for, wide

# Rows and columns of the logits that exist at a time: a few megabytes, or less than a gigabyte on a GPU.
_SHAPE, _GPU_SHAPE = (512, 2048), (4096, 8192)
# Extra columns beside a tile; the first receives targets in other tiles. With 8, rows begin at multiples of 16 bytes;
# otherwise a GPU multiplies several times slower.
_BESIDE = 8


@dataclass(frozen=True, eq=False)
class Tiled:
    """A head [V, H], and its bias [V] if it has one, in blocks of `rows` tokens x `tile` of the vocabulary."""

    head: Tensor
    bias: Tensor | None
    rows: int
    tile: int

    @staticmethod
    def of(head: Tensor, bias: Tensor | None = None) -> Tiled:
        """Blocks and tiles of the size for the head's device."""
        return Tiled(head, bias, *(_SHAPE if head.device.type == "cpu" else _GPU_SHAPE))

    def stats(
        self, hidden: Tensor, target: Tensor, scale: float | Tensor, *, drift: bool = False
    ) -> tuple[RowStats, Tensor]:
        """(statistics of M tokens, log-partition [2, M] of their logits: the maximum m and log2 Σ exp(z - m)/T)."""
        pieces = [self._block(hidden[at], target[at], part(scale, at), drift) for at in _slices(len(hidden), self.rows)]
        columns = torch.cat(pieces, 1)
        none = columns.new_empty(0)
        return RowStats(columns[2], columns[3], columns[4] if drift else none, none), columns[:2]

    def add_gradient(
        self,
        total: HeadGradient,
        hidden: Tensor,
        target: Tensor,
        scale: float | Tensor,
        known: tuple[RowStats, Tensor],
        g: Tensor,
        g_entropy: Tensor | None,
    ) -> None:
        """Adds the gradients of Σ g log p_y + g_entropy H to `total`; skips tokens where both g and g_entropy are 0.

        Args:
            known: the result of `stats`.
            g, g_entropy: [M], incoming gradients.
        """
        live = ((g != 0) if g_entropy is None else (g != 0) | (g_entropy != 0)).nonzero()[:, 0]
        stats, partition = known
        # At least float32, as sums over tiles in the head's own dtype would lose small numbers.
        to_hidden = torch.zeros(len(live), hidden.shape[1], dtype=stats.logprob.dtype, device=hidden.device)
        parts = [(at, live[at]) for at in _slices(len(live), self.rows)]
        for tile in _slices(len(self.head), self.tile):
            weight = self.head[tile]
            # Sums are at least float32; for a half-precision head a buffer of one tile is enough.
            kept = None if total.head is None else total.head[tile]
            wider = None
            if kept is not None and kept.dtype != wide(kept.dtype):
                wider = torch.empty_like(kept, dtype=wide(kept.dtype))
            bias = None if total.bias is None else total.bias[tile]
            of_tile = HeadGradient(None, kept if wider is None else wider, bias, total.blank or wider is not None)
            for at, rows in parts:
                h, y, a = hidden[rows], target[rows], scale[rows] if isinstance(scale, Tensor) else scale
                left = self._residual(h, y, a, partition[:, rows], stats.logprob[rows], tile)
                incoming = g[rows], None if g_entropy is None else g_entropy[rows]
                place = _column(y, tile, left.shape[1] - _BESIDE)
                w, factor = ascent(left, stats.at(rows), place, a, *incoming, spend=True)
                w = w[:, :-_BESIDE]
                if total.hidden is not None:
                    to_hidden[at] += (w @ weight) * factor
                of_tile.add(at, w, factor, h, weight, spend=True)
            of_tile.settle()
            if kept is not None and wider is not None:
                kept.copy_(wider) if total.blank else kept.add_(wider)
        total.blank = False
        if total.hidden is not None:
            total.hidden.index_copy_(0, live, to_hidden.to(total.hidden.dtype))

    def _block(self, hidden: Tensor, target: Tensor, scale: float | Tensor, drift: bool) -> Tensor:
        """[5, k]: m and log2 Σ exp(z - m)/T, log p_y, H and drift, from running sums over the tiles."""
        dtype = wide(hidden.dtype)
        scale = scale / LN2
        peak = hidden.new_full((len(hidden), 1), torch.finfo(dtype).min, dtype=dtype)
        at_target, *running = (torch.zeros_like(peak) for _ in range(5))
        for tile in _slices(len(self.head), self.tile):
            z = logits_of(hidden, self.head[tile], None if self.bias is None else self.bias[tile])
            place = _column(target, tile, z.shape[1]).unsqueeze(-1)
            in_tile = z.gather(-1, place.clamp(max=z.shape[1] - 1)).to(dtype)
            at_target = torch.where(place < z.shape[1], in_tile, at_target)
            top, s, mean, *moments = sums_for(z, z)(z, scale, z, 5 if drift else 3)
            # In a tile without a finite logit, the means are 0 / 0.
            means = (s.new_ones(()), mean, *((x * s for x in moments) if drift else (s.new_zeros(()),) * 2))
            here = [torch.where(s == 0, 0, x * s) for x in means]
            higher = torch.maximum(peak, top)
            # Sums relative to an old maximum are rescaled to the new one.
            before, here = (_moved(x, (m - higher) * scale) for x, m in ((running, peak), (here, top)))
            running, peak = [a + b for a, b in zip(before, here, strict=True)], higher
        s, mean, squares, moved = running
        log_s, mean = s.log2(), mean / s
        logprob = (at_target - peak) * scale - log_s
        moved = (moved - mean * squares) / s.square()
        nats = torch.cat([logprob, log_s - mean, moved], 1) * LN2
        return torch.cat([peak, log_s, nats], 1).t()

    def _residual(
        self, hidden: Tensor, target: Tensor, scale: float | Tensor, partition: Tensor, logprob: Tensor, tile: slice
    ) -> Tensor:
        """p - 1_y of a tile in the head's dtype, [k, t + 8]; column t receives the targets in other tiles."""
        peak, log_s = partition[0].unsqueeze(-1), partition[1].unsqueeze(-1)
        z = logits_of(hidden, self.head[tile], None if self.bias is None else self.bias[tile])
        left = z.new_empty(len(z), z.shape[1] + _BESIDE)
        left[:, -_BESIDE:] = 0
        d = (z.sub_(peak) if z.dtype == peak.dtype else z - peak).mul_(scale / LN2).sub_(log_s)
        left[:, :-_BESIDE] = d.exp2_()
        # Not `scatter_`, which reads and writes all of a half-precision tensor.
        left[torch.arange(len(left), device=left.device), _column(target, tile, z.shape[1])] = logprob.expm1().to(
            left.dtype
        )
        return left


def _moved(sums: Sequence[Tensor], step: Tensor) -> list[Tensor]:
    """Σ e, Σ e d, Σ e² and Σ e² d, with e = exp2(d), after adding `step` [k, 1] <= 0 to every d."""
    s, mean, squares, moved = sums
    step = step.clamp(min=FLOOR)
    shrink = step.exp2()
    both = shrink.square()
    return [s * shrink, (mean + step * s) * shrink, squares * both, (moved + step * squares) * both]


def _column(target: Tensor, tile: slice, outside: int) -> Tensor:
    """The column of each target in a tile; `outside` if the target is in another tile."""
    place = target - tile.start
    return torch.where((place >= 0) & (place < outside), place, outside)


def _slices(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))

"""Decoding by CUDA graphs: a step is recorded on the GPU and replayed, without Python between its kernels.

A step of a language model is about a thousand small kernels, and Python takes longer to launch a kernel than the GPU
to run it. A recorded step (`FixedStep`) is a single launch. Numbers of rows and slots are rounded up to few sizes; each
size is recorded once and kept with the language model until its weights are in other memory. The program waits for the
device once per `BLOCK` steps, so rows may sample tokens after their end, which the mask leaves out.

Axes: N rows at the start, M rows of a step, S slots that it attends to, K steps of a block, V vocabulary, D head size.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...base.text import first_line
from ...core.head.kept import trimmed
from .decoder import PackedDecoder, Step, fill_holes, not_finite
from .model import LanguageModel, Prompts
from .packed import attention, can_pack, packed_logits
from .token_draw import Draw, draw, draw_cut, greedy, uniforms_at

if TYPE_CHECKING:
    from .sampler import Sampling

# Steps between two waits for the device.
BLOCK = 16
_FEWEST_ROWS, _FEWEST_SLOTS = 16, 64
# With fewer remaining steps, ended rows are kept: recording a step with fewer rows would take longer than it saves.
_WORTH_RECORDING = 2 * BLOCK
# Buffers up to this share of the device's memory are kept for the next call.
_KEPT = 1 / 8


def decode_graphed(
    lm: LanguageModel, prompts: Prompts, group_size: int, sampling: Sampling, keys: Tensor, limit: Tensor | None
) -> list[Step] | None:
    """The steps of all rollouts; None if the model, the device or a fault requires an ordinary decoder.

    Args:
        keys: [N] the rollouts' random streams.
        limit: [N] longest response of each rollout; None is `max_new_tokens` for all.

    Raises:
        NotFinite: no token can be sampled from some logits; noticed up to `BLOCK` steps later.
    """
    if lm.device.type == "cuda" and "graphed" not in lm.abilities:
        lm.abilities["graphed"] = Graphs(_CudaGraphs())
    graphs: Graphs | None = lm.abilities.get("graphed")
    if graphs is None or not can_pack(lm):
        return None
    try:
        return graphs.decode(lm, prompts, group_size, sampling, keys, limit)
    except RuntimeError as fault:
        lm.abilities["graphed"] = None
        warnings.warn(f"sampling goes on without CUDA graphs, several times slower: {first_line(fault)}", stacklevel=3)
        return None


def size_for(count: int, least: int) -> int:
    """The smallest number 2^k or 3 · 2^k that is at least both `count` and `least`."""
    size = 1 << (max(count, least) - 1).bit_length()
    return 3 * size // 4 if 3 * size // 4 >= max(count, least) else size


class FixedStep:
    """A decoding step whose tensors keep their addresses, and the `Packing` that its layers use.

    Keys and values have a fixed number of slots, and a bias hides the empty ones. The device counts the slot to write
    to and the number of the step. Sampled tokens and their statistics are stored for `BLOCK` steps.

    Args:
        first: the decoder that holds the prompts' keys and values.
        rows, slots: largest numbers of rows and slots in any step.
    """

    def __init__(self, first: PackedDecoder, rows: int, slots: int) -> None:
        keys = first.keys[0]
        self.rows, self.slots = rows, slots
        self.keys, self.values = (
            {i: x.new_zeros(rows, x.shape[1], slots, x.shape[3]) for i, x in layers.items()}
            for layers in (first.keys, first.values)
        )
        self.bias = keys.new_zeros(rows, slots)
        # Each row's last token, its position and its random stream.
        self.token, self.position, self.stream = first.position.new_zeros(3, rows)
        # The slot to write to and the number of the token to draw.
        self.slot, self.step = first.position.new_zeros(2, 1)
        self.tokens = first.position.new_zeros(BLOCK, rows)
        self.logprob, self.entropy = keys.new_zeros(2, BLOCK, rows, dtype=torch.float32)
        # Kept tokens by their largest number, which a recorded step has fixed.
        self.kept: dict[int, Tensor] = {}
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

    def run(self, model: Any, sampling: Sampling) -> Tensor:
        """Makes one step: appends each row's token and samples the next; returns the logits [M, V]."""
        m = self.window[0]
        self.position.add_(1)
        if (positions := getattr(model.config, "max_position_embeddings", None)) is not None:
            self.position.clamp_(max=positions - 1)  # for rows that have ended
        self.bias.index_fill_(1, self.slot, 0)
        logits = packed_logits(model, self.token[:m], self.position[:m], self)
        self.slot.add_(1)
        self.draw(logits, sampling)
        return logits

    def draw(self, logits: Tensor, sampling: Sampling) -> None:
        """Samples each row's next token from logits [M, V] and stores it."""
        m = len(logits)
        if sampling.temperature == 0:
            drawn = greedy(logits)
        elif sampling.cuts:
            drawn = draw_cut(logits, uniforms_at(self.stream[:m], self.step), sampling.temperature, sampling.cut)
        else:
            drawn = draw(logits, uniforms_at(self.stream[:m], self.step), sampling.temperature)
        self.token[:m] = drawn.token
        place = self.step % BLOCK
        for table, x in ((self.tokens, drawn.token), (self.logprob, drawn.logprob), (self.entropy, drawn.entropy)):
            table[:, :m].index_copy_(0, place, x.to(table.dtype).unsqueeze(0))
        if drawn.kept is not None:
            self.kept_of(drawn.kept.shape[1])[:, :m].index_copy_(0, place, drawn.kept.unsqueeze(0))
        self.step.add_(1)

    def kept_of(self, most: int) -> Tensor:
        """[BLOCK, rows, most] int32, the kept tokens of the last steps."""
        if most not in self.kept:
            self.kept[most] = self.tokens.new_zeros(*self.tokens.shape, most, dtype=torch.int32)
        return self.kept[most]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float) -> Tensor:
        m, s = self.window
        keys, values = self.keys[layer][:m], self.values[layer][:m]
        for cache, x in ((keys, k), (values, v)):
            cache.index_copy_(2, self.slot, x.unsqueeze(2))
        bias = self.bias[:m, None, None, :s]
        return attention(q.unsqueeze(2), keys[:, :, :s], values[:, :, :s], bias, scale, dropout).squeeze(2)

    def keep(self, going: Tensor, ended: Tensor) -> Tensor:
        """As `PackedDecoder.keep`."""
        return fill_holes([*self.caches, self.bias, self.token, self.position, self.stream], going, ended)

    def moving(self) -> list[Tensor]:
        """The tensors that a step reads and then changes."""
        return [self.token, self.position, self.slot, self.step]


class _Rows:
    """The response that each of M rows samples, and whether it has ended."""

    def __init__(self, lm: LanguageModel, n: int, m: int, vocabulary: int, limit: Tensor | None) -> None:
        self.n, self.limit, self.is_eos = n, limit, lm.ends(vocabulary)
        self.rows = F.pad(torch.arange(n, device=lm.device), (0, m - n))
        self.alive = torch.arange(m, device=lm.device) < n

    def after(
        self, start: int, token: Tensor, logprob: Tensor, entropy: Tensor, base: float, kept: Tensor | None
    ) -> tuple[list[Step], int]:
        """(steps, number of rows that have not ended) from the tables [K, M] of the steps start, ..., start + K - 1.

        Steps after the end of all rows are left out.
        """
        ended = self.is_eos[token]
        last = ended
        if self.limit is not None:
            step = torch.arange(start + 1, start + 1 + len(token), device=token.device)
            last = ended | (self.limit[self.rows] <= step.unsqueeze(1))
        before = self.alive & (last.cumsum(0) - last.long() == 0)
        self.alive = before[-1] & ~last[-1]
        broken = before & ~torch.isfinite(logprob)
        # The only wait for the device per block.
        left, used, faults = torch.stack([self.alive.sum(), before.any(1).sum(), broken.sum()]).tolist()
        if faults:
            step, place = broken.nonzero()[0].tolist()
            raise not_finite(start + step, int(self.rows[place]), self.n)
        heat, sampled = torch.full_like(entropy[0], base), torch.ones_like(ended[0])
        sets = [None] * len(token) if kept is None else kept
        draws = [Draw(y, lp, h, heat, lp, own) for y, lp, h, own in zip(token, logprob, entropy, sets, strict=True)]
        steps = zip(before, draws, ended, token, strict=True)
        return [Step(self.rows, *x, sampled) for x in steps][:used], left

    def keep(self, order: Tensor, m: int) -> None:
        left = len(order)
        self.rows = F.pad(self.rows[order], (0, m - left))
        self.alive = torch.arange(m, device=order.device) < left


# Takes a step and the tensors that it changes; returns the replay. If recording runs the step, it restores the tensors.
Recorder = Callable[[Callable[[], None], list[Tensor]], Callable[[], None]]


class Graphs:
    """The recorded steps of one language model, and the buffers that they share."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.step: FixedStep | None = None
        self.replays: dict[Any, Callable[[], None]] = {}
        self.recorded_for: Any = None
        self.verified = False
        self.logits: Tensor | None = None

    def decode(
        self, lm: LanguageModel, prompts: Prompts, group_size: int, sampling: Sampling, keys: Tensor,
        limit: Tensor | None,
    ) -> list[Step]:  # fmt: skip
        """As `decode_graphed`; raises RuntimeError if a step cannot be recorded, or differs from the ordinary one."""
        if (now := _recorded_for(lm)) != self.recorded_for:
            self._drop()
            self.recorded_for = now
        first = PackedDecoder(lm, prompts, group_size, max_new=1)
        n, length, longest = len(keys), first.filled, sampling.max_new_tokens
        m = size_for(n, _FEWEST_ROWS)
        step = self._ready(first, m, size_for(length + longest, _FEWEST_SLOTS))
        step.load(first, keys)
        step.draw(F.pad(first.logits, (0, 0, 0, m - n)), sampling)
        vocabulary = first.logits.shape[-1]
        most = min(sampling.cut.top_k or vocabulary, vocabulary)
        going = _Rows(lm, n, m, vocabulary, limit)
        expected = None if self.verified else first.step(step.token[:n])
        del first
        record: list[Step] = []
        for start in range(0, longest, BLOCK):
            end = min(start + BLOCK, longest)
            step.window = m, size_for(length + end, _FEWEST_SLOTS)
            for number in range(max(start, 1), end):
                self._replay(lm.model, step, sampling)
                if number == 1 and expected is not None:
                    self._verify(expected)
                    expected = None
            tables = (x[: end - start, :m].clone() for x in (step.tokens, step.logprob, step.entropy))
            kept = trimmed(step.kept_of(most)[: end - start, :m]) if sampling.cuts else None
            steps, left = going.after(start, *tables, sampling.temperature or 1.0, kept)
            record += steps
            if left == 0:
                break
            fewer = size_for(left, _FEWEST_ROWS)
            if fewer <= m // 2 and longest - end >= _WORTH_RECORDING:
                going.keep(step.keep(going.alive.nonzero().squeeze(-1), ~going.alive), fewer)
                m = fewer
        if step.token.device.type == "cuda":
            memory = torch.cuda.get_device_properties(step.token.device).total_memory
            if sum(x.nbytes for x in step.caches) > _KEPT * memory:
                self._drop()
        return record

    def _drop(self) -> None:
        self.replays.clear()
        self.step = None

    def _ready(self, first: PackedDecoder, rows: int, slots: int) -> FixedStep:
        """The kept buffers, or larger ones if they are too small."""
        if self.step is not None and (rows > self.step.rows or slots > self.step.slots):
            rows, slots = max(rows, self.step.rows), max(slots, self.step.slots)
            self._drop()
        if self.step is None:
            self.step = FixedStep(first, rows, slots)
        return self.step

    def _replay(self, model: Any, step: FixedStep, sampling: Sampling) -> None:
        key = (*step.window, sampling.temperature, sampling.cut)
        if key not in self.replays:

            def run() -> None:
                logits = step.run(model, sampling)
                self.logits = None if self.verified else logits

            self.replays[key] = self.recorder(run, step.moving())
        self.replays[key]()

    def _verify(self, expected: Tensor) -> None:
        """Compares the logits of the first replay with the ordinary decoder's."""
        replayed, self.logits = self.logits, None
        if replayed is None or not bool(torch.isfinite(expected).all()):
            return
        far = float((replayed[: len(expected)] - expected).abs().max() / expected.abs().max())
        exact = expected.dtype == torch.float64 or torch.get_float32_matmul_precision() == "highest"
        allowed = 1e-4 if exact and expected.dtype in (torch.float32, torch.float64) else 3e-2
        if not far <= allowed:
            raise RuntimeError(f"logits of a replayed step differ by {far:.1e} of the largest, allowed {allowed:.0e}")
        self.verified = True


def _recorded_for(lm: LanguageModel) -> Any:
    """Key of everything that a recorded step assumes: the weights' addresses and the active adapters."""
    weights = [(x.data_ptr(), x.shape) for x in (*lm.model.parameters(), *lm.model.buffers())]
    adapters = [
        (layer.disable_adapters, str(layer.active_adapters), layer.merged)
        for layer in lm.model.modules()
        if hasattr(layer, "merged")
    ]
    return weights, adapters


class _CudaGraphs:
    """Records steps as CUDA graphs that share one pool of memory."""

    def __init__(self) -> None:
        self.last: Callable[[], Any] = lambda: None

    def __call__(self, step: Callable[[], None], moved: list[Tensor]) -> Callable[[], None]:
        with torch.cuda.device(moved[0].device):
            before = [x.clone() for x in moved]
            _refuse_waits(step)
            for x, old in zip(moved, before, strict=True):
                x.copy_(old)
            graph, last = torch.cuda.CUDAGraph(), self.last()
            # A pool lives no longer than the graphs in it.
            pool = None if last is None else last.pool()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                step()
        self.last = weakref.ref(graph)
        return graph.replay


def _refuse_waits(step: Callable[[], None]) -> None:
    """Runs a step, which loads its kernels; raises RuntimeError if it waits for the device, as a graph cannot do that.

    Without this check the recording itself would fail and leave the device's random generator unusable.
    """
    side, mode = torch.cuda.Stream(), torch.cuda.get_sync_debug_mode()
    side.wait_stream(torch.cuda.current_stream())
    with warnings.catch_warnings(), torch.cuda.stream(side):
        warnings.simplefilter("ignore")  # torch warns that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    torch.cuda.current_stream().wait_stream(side)

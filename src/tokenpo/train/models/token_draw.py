"""Samples one token per row from logits, by inverting the cumulative distribution, with the token's statistics.

Every rollout has its own stream of uniform numbers, which are computed from counters rather than drawn in turn. The
number of (seed, stream, sample, step) is SplitMix64 at position `step`, from a state hashed from the other three, so a
rollout gets the same numbers in any batch and order. Only integers are used (int64 wraps around in torch), which are
bit-identical on every device.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ...core.head.kept import Cut
from ...core.head.softmax import LN2, entropy_of, softmax_parts, sums_for, wide
from ...core.request_temperature import TemperatureRule

# A vocabulary above `_SMALL` is first summed by blocks, as one long running sum is slow.
_SMALL, _BLOCK = 1024, 256


class Draw(NamedTuple):
    """One token per row, with its statistics; all [M], float32 (float64 for float64 logits).

    Args:
        token: int64.
        logprob, entropy: nats, at the base temperature.
        temperature: at which the token was sampled.
        rollout_logprob: nats, at that temperature.
        kept: [M, K] int32, the tokens among which a `Cut` let it choose, -1 last; numbers above are over these.
    """

    token: Tensor
    logprob: Tensor
    entropy: Tensor
    temperature: Tensor
    rollout_logprob: Tensor
    kept: Tensor | None = None


def draw(logits: Tensor, uniform: Tensor, base: float, rule: TemperatureRule | None = None) -> Draw:
    """Samples at temperature `base`, or at the temperature that `rule` returns for each row.

    Args:
        logits: [M, V]; -inf excludes a token.
        uniform: [M] float64 in [0, 1), at which each row's cumulative distribution is inverted.
        base: temperature > 0.
        rule: adaptive temperature; None for the constant one.
    """
    at_base = _Distribution(logits, 1.0 / base)
    entropy = at_base.entropy()
    if rule is None:
        token = _invert(at_base.p, uniform)
        logprob = at_base.logprob(token)
        return Draw(token, logprob, entropy, torch.full_like(entropy, base), logprob)
    temperature = rule(entropy, base).to(entropy.dtype)
    heated = _Distribution(logits, temperature.reciprocal().unsqueeze(-1))
    token = _invert(heated.p, uniform)
    return Draw(token, at_base.logprob(token), entropy, temperature, heated.logprob(token))


def draw_cut(logits: Tensor, uniform: Tensor, base: float, cut: Cut) -> Draw:
    """As `draw` at a constant temperature, among the tokens that a cut keeps; statistics are over these."""
    ids, kept = cut.of(_Distribution(logits, 1.0 / base).p)
    distribution = _Distribution(logits.gather(-1, ids).masked_fill(~kept, -torch.inf), 1.0 / base)
    place = _invert(distribution.p, uniform)
    logprob, entropy = distribution.logprob(place), distribution.entropy()
    token = ids.gather(-1, place.unsqueeze(-1)).squeeze(-1)
    return Draw(token, logprob, entropy, torch.full_like(entropy, base), logprob, ids.int().masked_fill(~kept, -1))


def greedy(logits: Tensor) -> Draw:
    """The first most probable token of each row, with its statistics at temperature 1."""
    distribution = _Distribution(logits, 1.0)
    token = logits.argmax(-1)
    entropy, logprob = distribution.entropy(), distribution.logprob(token)
    return Draw(token, logprob, entropy, torch.ones_like(entropy), logprob)


class _Distribution:
    """The softmax of logits [M, V] at inverse temperature `scale`; p [M, V] is proportional to its probabilities."""

    def __init__(self, logits: Tensor, scale: float | Tensor) -> None:
        self.parts = None
        if logits.shape[1] <= _SMALL:
            self.parts = softmax_parts(logits, scale)
            self.p = self.parts.p
            return
        # Takes fewer passes, and a kernel on a GPU.
        self.z, self.scale = logits.to(wide(logits.dtype)), scale / LN2
        self.p = torch.empty_like(self.z)
        self.peak, s, self.mean = sums_for(self.z, self.p)(self.z, self.scale, self.p, 3)
        self.log_s = s.log2()

    def entropy(self) -> Tensor:
        """[M] nats."""
        return entropy_of(self.parts) if self.parts else ((self.log_s - self.mean) * LN2).squeeze(-1)

    def logprob(self, token: Tensor) -> Tensor:
        """[M] nats."""
        place = token.unsqueeze(-1)
        if self.parts:
            return (self.parts.d.gather(-1, place) - self.parts.s.log()).squeeze(-1)
        return (((self.z.gather(-1, place) - self.peak) * self.scale - self.log_s) * LN2).squeeze(-1)


def _invert(weight: Tensor, uniform: Tensor) -> Tensor:
    """[M] first index at which the running sum of `weight` [M, V] exceeds uniform · total; its weight is never 0."""
    m, v = weight.shape
    if v <= _SMALL:
        # With NaN no entry is found; an index outside the row would end the process on a GPU.
        return _first_above(weight.cumsum(-1, dtype=torch.float64), uniform)[0].clamp(max=v - 1)
    # Most vocabularies are multiples of 128 or 256, which saves the copy for padding.
    size = _BLOCK if v % _BLOCK == 0 or v % (_BLOCK // 2) else _BLOCK // 2
    blocks = -(-v // size)
    if v % size:
        weight = torch.nn.functional.pad(weight, (0, size - v % size))
    weight = weight.view(m, blocks, size)
    block, rest = _first_above(weight.sum(-1, dtype=torch.float64).cumsum(-1), uniform)
    block = block.clamp(max=blocks - 1)
    inside = weight[torch.arange(m, device=weight.device), block].cumsum(-1, dtype=torch.float64)
    # Block sums and running sums may differ in the last bit; stay inside the block, on a token of positive weight.
    rest = torch.minimum(rest, inside[:, -1] * (1 - 2.0**-40))
    return (block * size + torch.searchsorted(inside, rest.unsqueeze(-1), right=True).squeeze(-1)).clamp(max=v - 1)


def _first_above(running: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """(index [M] of the first entry above uniform · total, that product minus the entry before it)."""
    # As uniform <= 1 - 2^-32, in float64 the product is below the total and an entry above it exists.
    mark = (running[:, -1] * uniform).unsqueeze(-1)
    index = torch.searchsorted(running, mark, right=True)
    before = running.gather(-1, (index - 1).clamp(min=0)) * (index > 0)
    return index.squeeze(-1), (mark - before).squeeze(-1)


_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def stream_keys(seed: int, stream: Tensor, sample: Tensor) -> Tensor:
    """[N] int64 keys of the rollouts with stream ids `stream` [N] and sample indices `sample` [N] (int64)."""
    folded = (seed + 2**63) % 2**64 - 2**63  # maps any integer to int64
    start = _mix(torch.tensor(folded ^ _GOLDEN, dtype=torch.int64, device=stream.device))
    return _mix(_mix(stream.long() + start) + sample.long() * _GOLDEN)


def uniforms(keys: Tensor, start: int, count: int) -> Tensor:
    """[count, N] float64: `uniforms_at` for the steps start, ..., start + count - 1."""
    return uniforms_at(keys, torch.arange(start, start + count, device=keys.device).unsqueeze(-1))


def uniforms_at(keys: Tensor, step: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), float64 multiples of 2^-32, for `step` int64, which broadcasts against keys [N]."""
    bits = _mix((step + 1) * _GOLDEN + keys)
    return _shifted(bits, 32).double() * 2.0**-32


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _MIX_1
    x = (x ^ _shifted(x, 27)) * _MIX_2
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's own shift keeps the sign."""
    return (x >> bits) & (2 ** (64 - bits) - 1)

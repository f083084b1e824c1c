"""A private stream of uniform numbers for every rollout, addressed by counters instead of drawn in turn.

The uniform of (seed, stream, sample, step) is SplitMix64 at position `step` from a state hashed from the other three:
a rollout sees the same numbers in any batch and order. Integer arithmetic only (int64 wraps around in torch), so
results are bit-identical on every device.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def stream_keys(seed: int, stream: Tensor, sample: Tensor) -> Tensor:
    """[N] int64 keys of the rollouts with stream ids `stream` [N] and sample indices `sample` [N] (int64)."""
    folded = (seed + 2**63) % 2**64 - 2**63  # any integer into int64
    start = _mix(torch.tensor(folded ^ _GOLDEN, dtype=torch.int64, device=stream.device))
    return _mix(_mix(stream.long() + start) + sample.long() * _GOLDEN)


def uniforms(keys: Tensor, start: int, count: int) -> Tensor:
    """[count, N] float64 in [0, 1), multiples of 2^-32: the numbers of steps start, ..., start + count - 1."""
    step = torch.arange(start + 1, start + count + 1, dtype=torch.int64, device=keys.device)
    bits = _mix(step.unsqueeze(-1) * _GOLDEN + keys)
    return _shifted(bits, 32).double() * 2.0**-32


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _MIX_1
    x = (x ^ _shifted(x, 27)) * _MIX_2
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's own keeps the sign."""
    return (x >> bits) & (2 ** (64 - bits) - 1)

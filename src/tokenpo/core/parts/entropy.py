"""Statistics of a batch's entropies: HAPO's normalised log-entropy ĥ, quantiles, and the adaptive temperature.

ĥ in [−1, 1] (2509.16591) says how uncertain a token is among all tokens of a batch. Entropies are those of the old
policy (phase one) or of the current policy (over a whole optimiser step).
"""

import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ..ops import masked
from ..ranges import Share, numbers_where
from ..types import Batch, Rollouts
from .part import BatchSignal, Look, Memory, Selection, Signal

EPS = 1e-8
Heat = Annotated[float, numbers_where("a number in [0, 1)", lambda x: 0 <= x < 1)]


class EntropyScale(NamedTuple):
    """The statistics that turn an entropy into a score; numbers, or tensors of shape [].

    Args:
        pivot: quantile of log H over the batch (log-nats).
        spread: root mean square of log H about the pivot.
        top, bottom: largest and smallest z-score, 0 if no token lies above or below the pivot.
    """

    pivot: Tensor | float
    spread: Tensor | float
    top: Tensor | float
    bottom: Tensor | float


def measure(entropy: Tensor, mask: Tensor, quantile: float) -> EntropyScale:
    """The scale of the entropies [N, T] (nats) where mask is true, as tensors []."""
    values = entropy[mask].clamp(min=EPS).log()
    if values.numel() == 0:
        raise TokenPOError("the entropy scale needs at least one response token, the mask is empty")
    pivot = masked.quantile(values, quantile)
    raw = values - pivot
    spread = raw.square().mean().sqrt()
    safe = torch.where(spread > 0, spread, 1.0)
    return EntropyScale(pivot, spread, raw.max().clamp(min=0) / safe, raw.min().clamp(max=0) / safe)


def score(entropy: Tensor, scale: EntropyScale, *, negative_is_positive: bool = False) -> Tensor:
    """ĥ of entropies of any shape: z / top above the pivot, z / |bottom| below; 0 where the divisor is 0.

    `negative_is_positive` divides by bottom itself, as the authors' released code does, which makes ĥ ≥ 0.
    """
    z = _over(entropy.clamp(min=EPS).log() - scale.pivot, scale.spread)
    below = _over(z, scale.bottom)
    return torch.where(z > 0, _over(z, scale.top), below if negative_is_positive else -below)


def _over(x: Tensor, extent: Tensor | float) -> Tensor:
    """x / extent, or 0 where the extent is 0."""
    extent = torch.as_tensor(extent, dtype=x.dtype, device=x.device)
    return torch.where(extent == 0, 0.0, x / extent)


def entropy_of(*, current: bool) -> str:
    """Name of the input with the entropies of the current policy or of the old one."""
    return "entropy" if current else "old_entropy"


class HighInResponse(Selection):
    """Tokens whose entropy exceeds a quantile of their own response's.

    Args:
        quantile: in [0, 1], by nearest rank over the response's tokens.
        current: use the current policy's entropies in place of the old policy's.
    """

    of_response = True
    quantile: Share
    current: bool = False

    @property
    def reads(self) -> set[str]:
        return {entropy_of(current=self.current)}

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need(entropy_of(current=self.current))
        return entropy > masked.row_quantile(entropy, batch.mask, self.quantile)


class OldEntropyScore(Signal):
    """ĥ of H_old over all tokens of the rollout batch, [N, T] in [−1, 1]; `released_sign` gives [0, 1]."""

    reads = {"old_entropy"}
    quantile: Share = 0.8
    released_sign: bool = False

    def __call__(self, rollouts: Rollouts) -> Tensor:
        return _scored(rollouts.need("old_entropy"), rollouts.mask, self.quantile, self.released_sign)


class CurrentEntropyScore(BatchSignal):
    """`OldEntropyScore` of the current entropies over one optimiser step; the authors' code takes each micro-batch."""

    reads = {"entropy"}
    quantile: Share = 0.8
    released_sign: bool = False

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        return _scored(batch.need("entropy"), batch.mask, self.quantile, self.released_sign)


class OldEntropyQuantile(Signal):
    """Nearest-rank quantile of H_old over all n tokens of the rollout batch; the same number at every token [N, T].

    Args:
        counted: take the ⌈(1 − quantile) n⌉-th largest entropy instead, so that this many tokens reach it.
    """

    reads = {"old_entropy"}
    quantile: Share
    counted: bool = False

    def __call__(self, rollouts: Rollouts) -> Tensor:
        values = rollouts.need("old_entropy")[rollouts.mask]
        return _threshold(values, self.quantile, self.counted).expand(rollouts.mask.shape)


class CurrentEntropyQuantile(BatchSignal):
    """`OldEntropyQuantile` of the current entropies over one optimiser step."""

    reads = {"entropy"}
    quantile: Share
    counted: bool = False

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        values = batch.need("entropy")[batch.mask]
        return _threshold(values, self.quantile, self.counted).expand(batch.mask.shape)


class HighInBatch(Selection):
    """Tokens whose entropy is at least a quantile over the whole batch."""

    threshold: OldEntropyQuantile | CurrentEntropyQuantile

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need(entropy_of(current=isinstance(self.threshold, CurrentEntropyQuantile)))
        return entropy >= batch.signal(self.threshold)


def _threshold(values: Tensor, quantile: float, counted: bool) -> Tensor:
    if not counted:
        return masked.quantile(values, quantile)
    # 1e-4: the rounding of the product must not add a token.
    return masked.smallest(values, len(values) - max(1, math.ceil((1 - quantile) * len(values) - 1e-4)))


def _scored(entropy: Tensor, mask: Tensor, quantile: float, released_sign: bool) -> Tensor:
    scale = measure(entropy, mask, quantile)
    return score(entropy, scale, negative_is_positive=released_sign)


class AdaptiveTemperature(Memory):
    """T_t = T (1 + tau ĥ_t): hotter where the policy is uncertain, cooler where it is sure. HAPO (2509.16591).

    Only sampling uses T_t. The entropy scale comes from the rollout batch before; in the first batch T_t = T.

    Args:
        tau: largest relative change, 0 <= tau < 1.
        quantile: pivot of the entropy scale, in [0, 1].
        released_sign: take ĥ's sign from the authors' released code, with which T_t never falls below T.
    """

    reads = {"old_entropy"}
    tau: Heat = 0.05
    quantile: Share = 0.8
    released_sign: bool = False

    def start(self) -> Mapping[str, float]:
        return {}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        scale = measure(rollouts.need("old_entropy"), rollouts.mask, self.quantile)
        return {name: float(x) for name, x in scale._asdict().items()}

    def __call__(self, entropy: Tensor, base: float, numbers: Mapping[str, float]) -> Tensor:
        """Temperature [M] of tokens, from the entropy [M] of their distributions at the base temperature."""
        if not numbers:
            return entropy.new_full(entropy.shape, base)
        h = score(entropy, EntropyScale(**numbers), negative_is_positive=self.released_sign)
        return base * (1 + self.tau * h.clamp(-1.0, 1.0))

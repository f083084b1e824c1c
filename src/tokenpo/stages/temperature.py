"""Temperature rules: how hot the next token is sampled. The value is the objective's; samplers apply it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import TokenPOError
from ..ops import entropy_score
from ..ops.entropy_score import EntropyScale
from ..signals import Part

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AdaptiveTemperature(Part):
    """T_t = T (1 + tau ĥ_t): hotter where the policy is uncertain, cooler where it is sure. HAPO (2509.16591).

    Args:
        tau: largest relative change, 0 <= tau < 1.
        quantile: pivot of the entropy scale.
        released_sign: the released code's sign, which never cools.
    """

    tau: float = 0.05
    quantile: float = 0.8
    released_sign: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.tau < 1:
            raise TokenPOError(f"adaptive temperature: tau = {self.tau} must lie in [0, 1)")

    def measure(self, entropy: Tensor, mask: Tensor) -> EntropyScale:
        """The scale of one rollout batch, for the sampling of the next; entropy [N, T] nats, mask [N, T] bool."""
        return EntropyScale(*(float(x) for x in entropy_score.measure(entropy, mask, self.quantile)))

    def __call__(self, entropy: Tensor, base: float, scale: EntropyScale | None) -> Tensor:
        """Temperature [M] of tokens whose logits have this entropy [M] at the base temperature; no scale, no change."""
        if scale is None:
            return entropy.new_full(entropy.shape, base)
        h = entropy_score.score(
            entropy, scale.pivot, scale.spread, scale.top, scale.bottom, negative_is_positive=self.released_sign
        )
        return base * (1 + self.tau * h.clamp(-1.0, 1.0))

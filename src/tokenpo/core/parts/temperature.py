"""The rule by which samplers adapt the temperature of each token; a part of the objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor

from ..ops import entropy_score
from ..ops.entropy_score import EntropyScale
from ..ranges import Share, numbers_where
from ..types import Rollouts
from .part import Memory

Heat = Annotated[float, numbers_where("a number in [0, 1)", lambda x: 0 <= x < 1)]


class AdaptiveTemperature(Memory):
    """T_t = T (1 + tau ĥ_t): hotter where the policy is uncertain, cooler where it is sure. HAPO (2509.16591).

    Only sampling uses T_t; entropies and log-probabilities are taken at T. The entropy scale comes from the rollout
    batch before; in the first batch T_t = T.

    Args:
        tau: largest relative change, 0 <= tau < 1.
        quantile: pivot of the entropy scale, in [0, 1].
        released_sign: use the sign of ĥ in the authors' released code, with which the temperature never falls below T.
    """

    reads = {"old_entropy"}
    tau: Heat = 0.05
    quantile: Share = 0.8
    released_sign: bool = False

    def start(self) -> Mapping[str, float]:
        return {}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        scale = entropy_score.measure(rollouts.need("old_entropy"), rollouts.mask, self.quantile)
        return {name: float(x) for name, x in scale._asdict().items()}

    def __call__(self, entropy: Tensor, base: float, numbers: Mapping[str, float]) -> Tensor:
        """Temperature [M] of tokens, from the entropy [M] of their distributions at the base temperature."""
        if not numbers:
            return entropy.new_full(entropy.shape, base)
        h = entropy_score.score(entropy, EntropyScale(**numbers), negative_is_positive=self.released_sign)
        return base * (1 + self.tau * h.clamp(-1.0, 1.0))

"""AER: an entropy bonus, larger on hard prompts, that steers entropy towards a fraction of the first batch's.

Second-hand: hard prompts get a larger bonus, the target lies below the initial entropy, and one global coefficient
follows the distance to the target. The forms of d and of the update are ours.

    d_g = max(0, 1 − acc_g / rho)         (acc_g: the group's mean reward, in [0, 1])
    J   = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) + Λ · d_g · H_it ],   gradient through H_it
    Λ  ← clip(Λ + delta · sign(tau H̄_0 − H̄), 0, largest) after each rollout batch; H̄ is its mean entropy

Defaults: tau 0.4 (second-hand); rho 0.5, delta 1e-4, largest 0.005, Λ from 0 and clip 0.2/0.2 are ours.
Options: rule="proportional" moves Λ by delta · (tau H̄_0 − H̄).
Reductions: largest = 0 is GRPO over tokens; rho = inf treats all prompts alike.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts import Clip, EntropyBonus, FixedBounds, GroupAdvantage, MemorySignal, TokenMean
from ..core.ranges import AboveZero, NotNegative, between
from ..core.types import Rollouts
from .options import Bound, High, Low, Start, Step
from .paper import Paper

Target = Annotated[NotNegative, "target as a share of the first batch's mean entropy"]
Cutoff = Annotated[AboveZero, "accuracy from which a prompt gets no bonus; inf gives all prompts the same"]


class DifficultyCoefficient(MemorySignal):
    """Λ · d_g at every token of a group [N, T]; `proportional` steps by the distance to the target, not by its sign."""

    reads = {"old_entropy"}
    tau: Target
    rho: Cutoff
    delta: Step
    largest: Bound
    initial: Start
    proportional: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(initial=between(0, self.largest).because("the largest coefficient"))

    def start(self) -> Mapping[str, float]:
        return {"coefficient": self.initial}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        entropy = float(masked.mean(rollouts.need("old_entropy"), rollouts.mask))
        target = numbers.get("target", self.tau * entropy)
        distance = target - entropy
        step = distance if self.proportional else math.copysign(1.0, distance) if distance else 0.0
        coefficient = min(max(numbers["coefficient"] + self.delta * step, 0.0), self.largest)
        return {"coefficient": coefficient, "target": target}

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        accuracy = groups.mean_std(rollouts.reward)[0].clamp(0.0, 1.0)
        difficulty = (1 - accuracy / self.rho).clamp(min=0.0).to(rollouts.old_logprob.dtype)
        return (numbers["coefficient"] * difficulty)[:, None].expand(rollouts.mask.shape)


@Paper(
    "Rethinking Entropy Regularization in Large Reasoning Models",
    "2510.10959",
    "second-hand + reconstructed",
    "the difficulty function and the rule of the coefficient",
)
def aer(
    *,
    tau: Target = 0.4,
    rho: Cutoff = 0.5,
    rule: Annotated[
        Literal["sign", "proportional"], "step by the sign of the distance, or in proportion to it"
    ] = "sign",
    delta: Step = 1e-4,
    largest: Bound = 0.005,
    start: Start = 0.0,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """GRPO over tokens with an entropy bonus for hard prompts, steered to a share of the initial entropy."""
    coefficient = DifficultyCoefficient(tau, rho, delta, largest, start, rule == "proportional")
    penalties = (EntropyBonus(coefficient),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)

"""Skywork-OR1's adaptive entropy control: a bonus on the entropy that grows while the entropy is below its target.

    c  = α · 1[H̄_old < target]         (H̄_old: mean entropy of the rollout batch's tokens)
    J  = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) + c · H_it ],   gradient through H_it
    α ← min(α + delta, largest) where H̄_old < target, else max(α − delta, 0), after each rollout batch

Defaults: target 0.2 nats, delta 1e-4, largest 0.005, α from 0 (the authors' script); clip 0.2/0.2.
Departures: a batch's own mean entropy gates it. The authors' code gates the *next* batch (the first is open), and takes
−mean lp_old of the sampled tokens for the entropy: controller="released" does both. TRL gates by the entropy of the
step before, and its delta is 0.005. Under dynamic sampling the gate reads the kept groups; the change of α and the
released gate read all that were drawn (the authors' code: the kept ones).
Reductions: largest = 0 is GRPO over tokens.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.parts import Clip, EntropyBonus, FixedBounds, GroupAdvantage, MemorySignal, TokenMean
from ..core.ranges import Limit, between
from ..core.types import Rollouts
from .options import Bound, High, Low, Start, Step
from .paper import Paper

Target = Annotated[Limit, "mean entropy to stay at, nats; inf keeps the bonus on"]


class GatedCoefficient(MemorySignal):
    """α while the batch's mean entropy is below the target, else 0, at every token [N, T].

    `released`: the batch before gates this one, and −lp_old of the sampled tokens stands for their entropies.
    """

    target: Target
    delta: Step
    largest: Bound
    initial: Start
    released: bool = False

    @property
    def reads(self) -> set[str]:
        return set() if self.released else {"old_entropy"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(initial=between(0, self.largest).because("the largest coefficient"))

    def start(self) -> Mapping[str, float]:
        return {"coefficient": self.initial} | ({"open": 1.0} if self.released else {})

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        below = self._below(rollouts)
        change = self.delta if below else -self.delta
        coefficient = min(max(numbers["coefficient"] + change, 0.0), self.largest)
        return {"coefficient": coefficient} | ({"open": float(below)} if self.released else {})

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        is_open = numbers["open"] if self.released else self._below(rollouts)
        coefficient = numbers["coefficient"] if is_open else 0.0
        return rollouts.old_logprob.new_tensor(coefficient).expand(rollouts.mask.shape)

    def _below(self, rollouts: Rollouts) -> bool:
        entropy = -rollouts.old_logprob if self.released else rollouts.need("old_entropy")
        return bool(masked.mean(entropy, rollouts.mask) < self.target)


@Paper(
    "Skywork Open Reasoner 1 Technical Report",
    "2505.22312",
    "code",
    code="SkyworkAI/Skywork-OR1@64e96af:verl/trainer/ppo/core_algos.py; "
    "SkyworkAI/Skywork-OR1@64e96af:verl/trainer/ppo/ray_trainer.py; "
    "SkyworkAI/Skywork-OR1@64e96af:verl/workers/actor/dp_actor.py",
)
def skywork_entropy(
    *,
    target: Target = 0.2,
    delta: Step = 1e-4,
    largest: Bound = 0.005,
    start: Start = 0.0,
    low: Low = 0.2,
    high: High = 0.2,
    controller: Annotated[
        Literal["current", "released"], "gate by this batch's entropy, or, as released, by −mean lp_old of the last"
    ] = "current",
) -> Objective:
    """GRPO over tokens with an entropy bonus whose coefficient keeps the entropy near a target."""
    coefficient = GatedCoefficient(target, delta, largest, start, controller == "released")
    penalties = (EntropyBonus(coefficient),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)

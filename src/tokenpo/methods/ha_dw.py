"""HA-DW: history-aware difficulty weighting; the advantage is corrected for how hard the prompt is for the policy now.

    C    = mean of the last `history` batch means of the reward: what the policy can do on average
    D_i  = −sign(A_i) · sign(p̂_g − C),   M = |p̂_g − C|      (p̂_g: the group's mean reward)
    Φ_i  = scale · exp(D_i M)
    J    = 1/N Σ_i 1/|o_i| Σ_t min(r_it Φ_i A_i, clip(r_it, 1−low, 1+high) Φ_i A_i),   A = (R − mean) / std

On a prompt harder than usual, right answers count more and wrong ones less; on an easy one the reverse.
Defaults: scale 1.3 (the best in the paper's table), history 10 (the authors' script), clip 0.2/0.2.
Options: anchor="current" counts the batch itself in C, as the authors' code does, with scale 1.5.
Departures: a group of one learns nothing; the authors' code gives it mean 0 and deviation 1. The paper's other anchor,
a filter with a forgetting rate, is left out: its constants are not given. Before the first batch C is the batch's own
mean. The means of earlier batches count all groups that the engine sampled; under dynamic sampling the batch's own
mean, used in the first batch and with anchor="current", counts the kept groups only. The exponent is bounded to ±20:
rewards are meant to lie in [0, 1].
Reductions: scale = 1 and p̂_g = C everywhere is GRPO; the factor `scale` alone only changes the learning rate.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.ops.ratio import BOUND
from ..core.parts import Clip, FixedBounds, GroupAdvantage, MemorySignal, SequenceMean, Weight
from ..core.ranges import Count, Positive
from ..core.types import Batch, Rollouts, Trust
from .options import High, Low
from .paper import Paper

History = Annotated[Count, "batches whose mean reward the anchor averages"]


class Ease(MemorySignal):
    """p̂_g − C: how much better a group did than the batches before, [N, T] in units of the reward.

    Remembers the mean rewards of the last batches by age, "1" the last; `current` counts the batch itself among them.
    """

    history: History
    current: bool

    def start(self) -> Mapping[str, float]:
        return {}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        everyone = Groups.of(rollouts.group, rollouts.mask.any(1)).one()
        # Read in order of age, as a checkpoint may sort "10" before "2".
        before = [numbers[str(age)] for age in range(1, len(numbers) + 1)]
        newest = [float(everyone.mean_std(rollouts.reward)[0][0]), *before]
        return {str(age): mean for age, mean in enumerate(newest[: self.history], 1)}

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        means = numbers if numbers and not self.current else self.after(numbers, rollouts)
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        ease = groups.mean_std(rollouts.reward)[0] - sum(means.values()) / len(means)
        return ease[:, None].expand(rollouts.mask.shape)


class DifficultyWeight(Weight):
    """scale · exp(−sign(A) (p̂_g − C)), the exponent bounded to ±20 as a log-ratio is."""

    scale: Positive
    ease: Ease

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        advantage = batch.credit.advantage
        weight = self.scale * (-advantage.sign() * batch.signal(self.ease)).clamp(-BOUND, BOUND).exp()
        return weight.to(advantage.dtype)


@Paper(
    "Your Group-Relative Advantage Is Biased",
    "2601.08521",
    "code",
    "the paper's filtered anchor",
    code="yangfengkai/HA-DW@8b08794:verl/trainer/ppo/core_algos.py; "
    "yangfengkai/HA-DW@8b08794:verl/trainer/ppo/ray_trainer.py",
)
def ha_dw(
    *,
    scale: Annotated[Positive, "factor on every weight"] = 1.3,
    history: History = 10,
    anchor: Annotated[Literal["prior", "current"], '"prior" batches only, or the "current" one too'] = "prior",
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Weighs right answers to hard prompts and wrong answers to easy prompts more than the other answers."""
    weight = DifficultyWeight(scale, Ease(history, anchor == "current"))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=(weight,))

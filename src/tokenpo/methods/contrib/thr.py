"""THR: weighs the tokens that decide how likely right responses become, towards exploitation or exploration.

The parts are known from reviews; the form of the factor, its size and its threshold are ours. The score s is NTHR's.

    THR_jk = s_jk on right responses, −s_jk on wrong ones   (s: `influence`, see nthr)
    tau    = min_{i right} 1/|o_i| Σ_k s_ik
    A_jk   = A_j · 1[|THR_jk| > tau] · (1 + p · sign THR_jk)
    J = GRPO's with A_jk in place of A_j

THR > 0 marks the tokens through which a GRPO step makes the right responses more likely. p > 0 leans towards them
(exploitation), p < 0 away from them (exploration).
Defaults: p 0.1 (ours; the value was not found); clip 0.2/0.2 as in GRPO. The denominator counts every token.
Options: mask=False keeps the tokens of small |THR|.
Departures: right means a reward above the group's mean. A negative tau silences nothing.
Reductions: p = 0 with mask=False is GRPO.
"""

from typing import Annotated

import torch
from torch import Tensor

from ...core.objective import Objective
from ...core.parts import Clip, FixedBounds, GroupAdvantage, SequenceMean, Signal, SignalWeight
from ...core.ranges import inside
from ...core.types import Rollouts
from ..options import High, Low
from ..paper import Paper
from .nthr import Influence, sides

Lean = Annotated[float, inside(-1, 1).because("or advantages would vanish or change sign")]

Mask = Annotated[bool, "tokens that hardly move the right responses get no gradient"]


class HiddenReward(Signal):
    """1 + p · sign THR, and 0 where |THR| does not exceed the threshold; 1 in groups of equal rewards."""

    p: Lean
    mask: Mask
    by: Influence = Influence()

    def __call__(self, rollouts: Rollouts) -> Tensor:
        influence = rollouts.need("influence")
        right, wrong, _, least = sides(rollouts)
        factor = 1 + self.p * torch.where(right[:, None], influence, -influence).sign()
        if self.mask:
            factor = factor * (influence.double().abs() > least[:, None])
        return torch.where((right | wrong)[:, None], factor, 1.0)


@Paper(
    "Token Hidden Reward: Steering Exploration-Exploitation in Group Relative Deep Reinforcement Learning",
    "2510.03669",
    "second-hand + reconstructed",
    "the exact weight, the value of p and the threshold are open",
)
def thr(
    *,
    p: Annotated[Lean, "tokens that make right responses likelier get the factor 1 + p, the others 1 − p"] = 0.1,
    mask: Mask = True,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Raises (p > 0) or lowers (p < 0) the advantages of tokens that make right responses more likely."""
    weights = (SignalWeight(HiddenReward(p, mask)),) if p or mask else ()
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=weights)

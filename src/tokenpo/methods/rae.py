"""RAE: in self-play, a reward is compared with the moving average of the role's rewards.

    A_i = R_i − b_k,   k the role of i, before this batch      (`role`)
    b_k ← d^n b_k + (1 − d^n) · mean of R over the n responses of role k in the batch,   b_k = 0 at first
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

In a zero-sum game the mean of a group is near 0 whatever the policy does, and one role may have the easier side.
Defaults: decay d 0.95 (a framework's code); the clip, 0.2 on both sides, and the token mean are ours.
Departures: the framework goes response by response, so the order matters: each response is compared with the baseline
before its own reward moves it. Here a batch is compared with the baseline before the batch, which then moves as it
would after n responses that all earned their mean.
Reductions: with decay 1 the baseline stays 0, and the reward is the advantage.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Clip, CreditStage, FixedBounds, TokenMean
from ..core.parts.part import Memory
from ..core.ranges import Share
from ..core.types import Rollouts
from .options import High, Low
from .paper import Paper

Decay = Annotated[Share, "share of its role's baseline that a response leaves"]


class OverRole(CreditStage, Memory):
    """R_i minus the moving average of its role's rewards, remembered by the role's number."""

    reads = {"role"}
    decay: Decay

    def start(self) -> Mapping[str, float]:
        return {}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        alive, moved = rollouts.mask.any(1), dict(numbers)
        for role in rollouts.need("role")[alive].unique().tolist():
            earned = rollouts.reward[alive & (rollouts.need("role") == role)].double()
            kept = self.decay ** len(earned)
            moved[str(role)] = kept * numbers.get(str(role), 0.0) + (1 - kept) * float(earned.mean())
        return moved

    def __call__(self, rollouts: Rollouts, bonus: Tensor, *numbers: Mapping[str, float]) -> Tensor:
        role, averages = rollouts.need("role"), numbers[0] if numbers else {}
        baseline = torch.zeros_like(rollouts.reward, dtype=torch.float64)
        for name, value in averages.items():
            baseline = torch.where(role == int(name), value, baseline)
        advantage = (rollouts.reward + bonus).double() - baseline
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper(
    "SPIRAL: Self-Play on Zero-Sum Games Incentivizes Reasoning via Multi-Agent Multi-Turn Reinforcement Learning",
    "2506.24119",
    "code",
    "a framework's code was read, not the paper",
    code="PrimeIntellect-ai/prime-rl@1ada107:src/prime_rl/orchestrator/algo/rae.py",
)
def rae(*, decay: Decay = 0.95, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The advantage is the reward minus the moving average of its role's rewards."""
    return Objective(OverRole(decay), Clip(FixedBounds(low, high)), TokenMean())

"""SAPO: a soft gate in place of the clip.

    f_it = 4/tau · sigmoid(tau (r_it − 1)),   tau = tau_pos where A_i > 0, tau_neg elsewhere
    J = 1/N Σ_i 1/|o_i| Σ_t f_it A_i

Defaults: tau_pos 1.0, tau_neg 1.05 (code): wrong tokens fade a little faster.
Departures: the gate is evaluated as 4/tau · (1 − sigmoid(tau (1 − r))): the same number, whose gradient does not vanish
by rounding at large ratios.
Reductions: f has slope 1 at r = 1, so at lp = lp_old the gradient is GRPO's.
"""

import math
from typing import Annotated

import torch

from ..core.objective import Objective
from ..core.parts import GroupAdvantage, SequenceMean, SurrogateStage, TokenRatio
from ..core.parts.surrogate import nowhere
from ..core.ranges import Positive
from ..core.types import Batch, Trust
from .paper import TRL, VERL, Paper


class SoftGate(SurrogateStage):
    """4/tau · sigmoid(tau (r − 1)) · A."""

    own_slope = True
    tau_pos: Positive
    tau_neg: Positive

    def __call__(self, batch: Batch) -> Trust:
        ratio, advantage = TokenRatio()(batch), batch.credit.advantage
        tau = torch.where(advantage > 0, ratio.new_tensor(self.tau_pos), ratio.new_tensor(self.tau_neg))
        gate = 4 / tau * (1 - (tau * (1 - ratio)).sigmoid())
        return Trust(gate * advantage, ratio, 0.0, math.inf, nowhere(batch))


@Paper("Soft Adaptive Policy Optimization", "2511.20347", "code", code=f"{VERL}; {TRL}")
def sapo(
    *,
    tau_pos: Annotated[Positive, "steepness of the gate for positive advantages"] = 1.0,
    tau_neg: Annotated[Positive, "steepness of the gate for the other advantages"] = 1.05,
) -> Objective:
    """Tokens fade out smoothly as their ratio leaves 1, instead of being cut off."""
    return Objective(GroupAdvantage(), SoftGate(tau_pos, tau_neg), SequenceMean())

"""EDGE-GRPO: responses with low entropy count more, right ones and wrong ones.

    H̄_i = mean_t H_it
    A_i = (R_i − mean_g R) / (std_g R + eps) · mean_j H̄_j / H̄_i,   j over the responses of the batch
    J = 1/N Σ_i 1/|o_i| Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

This is the entropy-driven advantage; the paper's guided error correction rewrites responses and belongs to sampling.
Defaults: low = high = 0.2 and eps 1e-6, as in GRPO.
Departures: their script takes the token mean of a device's batch of one response, which is the mean of response means.
The authors' code adds 1e-4 to the deviation: eps=1e-4. H̄ is the old policy's, over response tokens, without gradient;
theirs is the current policy's, with its gradient and over padding too. H̄ below 1e-8 counts as 1e-8, and nothing else
bounds the factor: an almost certain response has an advantage of up to mean_j H̄_j · 1e8 times GRPO's. At the policy
that sampled, ∇lp of such tokens is as small as their entropy, so the gradient stays of GRPO's order; after further
updates on one rollout batch it need not, and then only the limit on the gradient norm bounds it.
Reductions: with equal mean entropies it is GRPO.
"""

from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts import Clip, CreditStage, FixedBounds, GroupAdvantage, SequenceMean
from ..core.ranges import NotNegative
from ..core.types import Rollouts
from .options import High, Low
from .paper import Paper

FLOOR = 1e-8


class EntropyDriven(CreditStage):
    """GRPO's advantage times the batch's mean entropy over the response's own."""

    across_groups = True
    reads = {"old_entropy"}
    group: GroupAdvantage = GroupAdvantage()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        everyone = Groups.of(rollouts.group, rollouts.mask.any(1)).one()
        own = masked.mean(rollouts.need("old_entropy").double(), rollouts.mask, dim=1).clamp(min=FLOOR)
        typical = everyone.mean_std(own[:, 0])[0][:, None]
        return self.group(rollouts, bonus) * typical / own


@Paper(
    "EDGE-GRPO: Entropy-Driven GRPO with Guided Error Correction for Advantage Diversity",
    "2507.21848",
    "code",
    code="ZhangXJ199/EDGE-GRPO@cbe13ca:trl_edge/trainer/grpo_aha_trainer.py",
)
def edge_grpo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    eps: Annotated[NotNegative, "added to the deviation of a group's rewards"] = 1e-6,
) -> Objective:
    """Divides the advantage by the response's mean entropy."""
    return Objective(EntropyDriven(GroupAdvantage(eps=eps)), Clip(FixedBounds(low, high)), SequenceMean())

"""RLOO: the baseline of a response is the mean reward of the others.

    A_i = R_i − mean_{j ≠ i in g} R_j = n/(n−1) · (R_i − mean_g R)
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

The baseline does not depend on the response it is subtracted from, so the gradient is unbiased.
Defaults: low = high = 0.2 and the token mean are the usual loss of a framework that offers RLOO as an estimator.
Departures: the paper's loss is the unclipped policy gradient of whole sequences. A group of one has advantage 0; the
framework keeps its reward.
Reductions: at lp = lp_old and equal group sizes the gradient is n/(n−1) times that of Dr. GRPO's advantage.
"""

from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import Clip, CreditStage, FixedBounds, GroupAdvantage, TokenMean
from ..core.types import Rollouts
from .options import High, Low
from .paper import VERL, Paper


class LeaveOneOut(CreditStage):
    """R_i minus the mean reward of the other responses of its group."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        centred = GroupAdvantage(std=False).of(groups, (rollouts.reward + bonus).double())
        size = groups.size()
        return (centred * size / (size - 1).clamp(min=1))[:, None].expand(rollouts.mask.shape)


@Paper(
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    "2402.14740",
    "code",
    code=VERL,
)
def rloo(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The advantage is the reward minus the mean of the group's other rewards."""
    return Objective(LeaveOneOut(), Clip(FixedBounds(low, high)), TokenMean())

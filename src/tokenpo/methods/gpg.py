"""GPG: the group policy gradient, rescaled for the groups without a gradient.

    A_i = (R_i − mean_g R) · B / (B − M)
    J = 1/Σ|o_i| Σ_i Σ_t A_i lp_it

B responses, M of them in groups whose rewards are all equal: their gradient is 0, and the others make up for it.
Defaults: the token mean of the paper.
Departures: the authors' trees for mathematics (open-r1, open-rs) take the token mean, those for vision (R1-V,
Visual-RFT, VisualThinker-R1-Zero) the mean of response means: sequence_mean=True. There `adjust_gd` switches the factor
on and a division by std_g + 1e-4 off. One framework takes the responses with a reward other than 0 for B − M. There is
no importance ratio: after the first update on a rollout batch the gradient is that of an old sample.
Reductions: at lp = lp_old and with mixed groups only, the gradient is that of Dr. GRPO's advantage with a token mean.
"""

from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import CreditStage, GroupAdvantage, LogLikelihood, SequenceMean, TokenMean
from ..core.types import Rollouts
from .paper import Paper


class RescaledAdvantage(CreditStage):
    """(R − mean_g) · B / (B − M), M counting the responses in groups of equal rewards."""

    across_groups = True

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        teaching = groups.varied(reward).sum().clamp(min=1)
        advantage = GroupAdvantage(std=False).of(groups, reward) * groups.valid.sum() / teaching
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper(
    "GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning",
    "2504.02546",
    "code",
    code="AMAP-ML/GPG@e096da8:open-r1/src/open_r1/gpg_trainer.py; "
    "AMAP-ML/GPG@e096da8:R1-V/src/r1-v/src/open_r1/trainer/grpo_trainer.py",
)
def gpg(
    *, sequence_mean: Annotated[bool, "take the mean of response means, not the mean over all tokens"] = False
) -> Objective:
    """The plain policy gradient of group advantages, without ratio, clip or deviation."""
    return Objective(RescaledAdvantage(), LogLikelihood(), SequenceMean() if sequence_mean else TokenMean())

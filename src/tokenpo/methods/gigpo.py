"""GiGPO (eq. 3 and 5 to 8): credit for whole trajectories, and for steps that began in the same state.

    G_ik  = s_ik + gamma G_i,k+1,   s_ik the reward that arrives in turn k
    A^E_i = R_i − mean_g R,         in which a trajectory counts once for each of its turns
    A^S_ik = G_ik − mean G,         over the turns of the group that began in the same state
    A_it  = A^E_i + omega A^S_ik,   k the turn of token t
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

Defaults: omega 1, no division by deviations and eps 1e-6, as in the code that was read; its training script divides
(std=True) and has gamma 0.95. gamma 1 and the clip 0.2 are ours. In the copies of the authors' trainer a trajectory
counts once for each of its turns (by_turn); in DrMAS, a later trainer of theirs, it counts once.
Departures: the authors train on steps as rows; here a trajectory is a row and a step is one of its turns; the
advantages are equal. A group of one trajectory learns nothing from A^E; their code keeps its raw reward. Two states are
the same if their `anchor` is.
Reductions: omega = 0 with one turn for each response is Dr. GRPO's advantage.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.ops.turns import Turns
from ..core.parts import Clip, CreditStage, FixedBounds, RewardToGo, TokenMean
from ..core.ranges import NotNegative, Share
from ..core.types import Rollouts
from .options import High, Low
from .paper import Paper

Omega = Annotated[NotNegative, "weight of the comparison of turns"]
ByTurn = Annotated[bool, "in the group's mean a trajectory counts once for each of its turns"]


class GroupInGroup(CreditStage):
    """The trajectory's advantage in its group plus `omega` times the turn's among turns from the same state."""

    step: RewardToGo
    omega: Omega = 1.0
    by_turn: ByTurn = True

    reads = {"turn"}

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        turns = Turns.of(rollouts.need("turn"), rollouts.mask)
        mean, std = groups.mean_std(reward, weight=turns.count if self.by_turn else None)
        centred = reward.double() - mean
        episode = torch.where(groups.varied(reward), centred / (std + self.step.eps) if self.step.std else centred, 0.0)
        return episode[:, None] + self.omega * self.step(rollouts, bonus)


@Paper(
    "Group-in-Group Policy Optimization for LLM Agent Training",
    "2505.10978",
    "code",
    "the authors' own trainer was read in copies only",
    code="johnhaofu/verl-agent@c23d586:gigpo/core_gigpo.py; langfengQ/DrMAS@3b556f2:gigpo/core_gigpo.py; "
    "cq-dong/verl-agent@595dfc6:examples/gigpo_trainer/run_alfworld.sh",
)
def gigpo(
    *,
    omega: Omega = 1.0,
    gamma: Annotated[Share, "discount from one turn to the next"] = 1.0,
    std: Annotated[bool, "divide by the deviations of rewards and of returns from the same state"] = False,
    eps: Annotated[NotNegative, "added to the deviations"] = 1e-6,
    by_turn: ByTurn = True,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Compares each turn with the turns that began in the same state, and each trajectory with its group."""
    credit = GroupInGroup(RewardToGo(gamma, anchored=True, std=std, eps=eps), omega, by_turn)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean())

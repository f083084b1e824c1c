"""Credit: rewards of a group become advantages."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..ops.group import Groups, others_mean, prior_weight
from ..ops.turns import Turns
from ..ranges import NotNegative, Share
from ..types import Rollouts
from .part import CreditStage


class GroupAdvantage(CreditStage):
    """A_i = (R_i − mean_g) / (std_g + eps), the same for every token of the response; GRPO (2402.03300).

    A group whose rewards are all equal gets exactly 0. Rows without a response token belong to no group.

    Args:
        std: divide by the group's standard deviation (ddof 1); False is Dr. GRPO's advantage.
        eps: added to the standard deviation, ≥ 0.
    """

    std: bool = True
    eps: NotNegative = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        return self.of(groups, reward).to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)

    def of(self, groups: Groups, reward: Tensor) -> Tensor:
        """Advantage [N] of rewards [N], in float64."""
        mean, std = groups.mean_std(reward)
        centred = reward.double() - mean
        return torch.where(groups.varied(reward), centred / (std + self.eps) if self.std else centred, 0.0)


class ShrunkAdvantage(CreditStage):
    """A_i = (R_i − V_i) / (std + eps), the same for every token of the response; std (ddof 1) is over the batch.

        V_i = ((n − 1) · mean of the group's others + κ · mean of the other groups) / (n − 1 + κ)
        κ   = variance of rewards within groups / variance between groups, as estimated from the batch

    V_i is an empirical-Bayes estimate of the prompt's mean reward that does not use R_i. A batch whose rewards are all
    equal gets exactly 0. Rows without a response token belong to no group.

    Args:
        eps: added to the standard deviation, ≥ 0.
    """

    across_groups = True
    eps: NotNegative = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        whole = groups.one()
        # Subtract the lowest reward, so that sums of equal rewards are exactly equal.
        reward = torch.where(groups.valid, reward - whole.extremes(reward)[0], 0.0)
        centred = reward - others_mean(groups, reward, prior_weight(groups, reward))
        advantage = torch.where(whole.varied(reward), centred / (whole.mean_std(reward)[1] + self.eps), 0.0)
        return advantage.to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)


class RewardToGo(CreditStage):
    """A_it = G_ik − mean G, k the turn of token t: the reward to go less its mean over comparable turns of the group.

    G_ik = s_ik + gamma G_i,k+1, where s_ik is the turn's sum of `token_reward`; a bonus is added to the last turn. A
    turn with no comparable other gets exactly 0, and so do comparable turns whose G are all equal.

    Args:
        gamma: discount from one turn to the next, in [0, 1].
        anchored: compare the group's turns that began in the same state (GiGPO, 2505.10978, eq. 7) rather than the
            turns with the same number.
        std: divide by the standard deviation (ddof 1) over the compared turns.
        eps: added to the standard deviation, ≥ 0.
    """

    gamma: Share = 1.0
    anchored: bool = False
    std: bool = False
    eps: NotNegative = 1e-6

    @property
    def reads(self) -> set[str]:
        return {"token_reward", "turn"} | ({"anchor"} if self.anchored else set())

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        mask = rollouts.mask
        turns = Turns.of(rollouts.need("turn"), mask)
        held, place = turns.held, torch.arange(turns.number, device=mask.device).expand(len(mask), -1)
        reward = turns.sum(rollouts.need("token_reward")) + bonus[:, None] * (place == turns.count[:, None] - 1)
        ids = turns.largest(rollouts.need("anchor")) if self.anchored else place
        _, comparable = torch.unique(
            torch.stack([rollouts.group[:, None].expand(held.shape)[held], ids[held]]), dim=1, return_inverse=True
        )
        advantage = torch.zeros_like(reward)
        compared = Groups.of(comparable, torch.ones_like(comparable, dtype=torch.bool))
        advantage[held] = GroupAdvantage(self.std, self.eps).of(compared, turns.to_go(reward, self.gamma)[held])
        return turns.spread(advantage)


def by_group(credit: Callable[[Rollouts, Tensor], Tensor], rollouts: Rollouts, bonus: Tensor) -> Tensor:
    """`credit(rollouts, bonus)` [N, T], computed for one group at a time to save memory."""
    whole = torch.empty_like(rollouts.old_logprob)
    sizes = torch.unique(rollouts.group, return_counts=True)[1].tolist()
    for rows in rollouts.group.argsort(stable=True).split(sizes):
        whole[rows] = credit(rollouts.rows(rows), bonus[rows]).to(whole.dtype)
    return whole

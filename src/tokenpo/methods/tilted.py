"""Regression of a group's log-likelihoods to a target that rewards tilt."""

import math
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts.credit import GroupAdvantage, RelativeAdvantage
from ..core.parts.loss import ConstantLength
from ..core.parts.part import BatchSignal, Look, Penalty, SurrogateStage
from ..core.parts.surrogate import TokenRatio, nowhere
from ..core.ranges import Positive
from ..core.types import Batch, Trust
from .paper import Paper


class Silent(SurrogateStage):
    """0: a penalty reads the advantage instead."""

    own_slope = True

    def __call__(self, batch: Batch) -> Trust:
        ratio = TokenRatio()(batch).detach()
        return Trust(torch.zeros_like(ratio), ratio, 0.0, math.inf, nowhere(batch))


class GroupSlope(BatchSignal):
    """N ∂L/∂Σ_t lp_it of each response at its tokens [N, T], from the groups of the step."""

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        rollouts, mask = batch.rollouts, batch.mask
        groups = Groups.of(rollouts.group, mask.any(1))
        new, old, advantage = (
            masked.keep(x.detach(), mask).sum(1).double()
            for x in (batch.policy.logprob, rollouts.old_logprob, batch.credit.advantage / mask.sum(1, keepdim=True))
        )
        slope = self.of(groups, new, old, advantage)
        return slope.to(batch.policy.logprob.dtype)[:, None].expand(mask.shape)

    def of(self, groups: Groups, new: Tensor, old: Tensor, advantage: Tensor) -> Tensor:
        """[N] from the log-likelihoods of the responses, now and before the update, and their advantages [N]."""
        raise NotImplementedError


class Sloped(Penalty):
    """slope · lp: its gradient is that of the loss, its value is not."""

    slope: GroupSlope

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return batch.signal(self.slope) * batch.policy.logprob


def _regression(credit: GroupAdvantage | RelativeAdvantage, slope: GroupSlope) -> Objective:
    return Objective(credit, Silent(), ConstantLength(1.0), penalties=(Sloped(slope),))


Beta = Annotated[Positive, "nats of log-ratio that one unit of reward is worth, inverse"]
Heat = Annotated[Positive, "temperature of the tilt, in deviations of the reward"]


class SquaredSlope(GroupSlope):
    """beta n/(n − 1) · (beta (S_i − mean_g S) − A_i), S the log-ratio of a response."""

    beta: Beta

    def of(self, groups: Groups, new: Tensor, old: Tensor, advantage: Tensor) -> Tensor:
        drift, size = new - old, groups.size()
        gap = self.beta * (drift - groups.mean_std(drift)[0]) - advantage
        return torch.where(size > 1, self.beta * gap * size / (size - 1).clamp(min=1), 0.0)


@Paper(
    "GVPO: Group Variance Policy Optimization", "2504.19599", "code", code="jszkc/GVPO@627aa25:GVPO/gvpo_core_algos.py"
)
def gvpo(*, beta: Beta = 0.1) -> Objective:
    """Fits the differences of a group's log-ratios to those of its rewards.

        S_i = Σ_t log r_it,   A_i = R_i − mean_g R
        L = 1/G Σ_g 1/(n−1) Σ_i ½ (beta (S_i − sg[mean_g S]) − A_i)²,   n responses in each of the step's G groups

    The least is where S_i − R_i/beta is the same for the whole group: the policy tilted by e^(R/beta), whose normaliser
    the differences leave out. No ratio, no clip, and any policy may have sampled.
    Defaults: beta 0.1 (code).
    Departures: the loss is taken through its slope, so the value shown is not L. Their sum is over a micro-batch. If an
    update holds a part of a group, the mean is of that part. A group of one has no slope.
    Reductions: at lp = lp_old the gradient is −beta n/(n−1) times that of Dr. GRPO's advantage under a token sum.
    """
    return _regression(GroupAdvantage(std=False), SquaredSlope(beta))


class TargetSlope(GroupSlope):
    """n (p − q): p the softmax of a group's log-likelihoods, q of those before the update plus advantage / eta."""

    eta: Heat

    def of(self, groups: Groups, new: Tensor, old: Tensor, advantage: Tensor) -> Tensor:
        def softmax(x: Tensor) -> Tensor:
            each = torch.where(groups.valid, (x - groups.extremes(x)[1]).exp(), 0.0)
            return each / groups.sum(each).clamp(min=1e-300)

        return groups.size() * (softmax(new) - softmax(old + advantage / self.eta))


@Paper("Target Policy Optimization", "2604.06159", "code", code="JeanKaddour/tpo@6fc6e90:src/tpo/algorithms.py")
def target_po(*, eta: Heat = 1.0) -> Objective:
    """Fits the shares that a group's responses have of its likelihood to shares tilted by their rewards.

        z_i = (R_i − mean_g R) / std_g R,   std with ddof 0;   0 where all rewards are equal
        q = softmax_g(Σ_t lp_old,it + z_i / eta),   p = softmax_g(Σ_t lp_it)
        L = −1/G Σ_g Σ_i q_i log p_i,   whose gradient to Σ_t lp_it is (p_i − q_i) / G

    The push is bounded by 1 and ends where p = q, without a clip.
    Defaults: eta 1 (code).
    Departures: the loss is taken through its slope, so the value shown is not L. If an update holds a part of a group,
    p and q are of that part. Likelihoods of long responses differ by many nats: then p and q are nearly one-hot.
    Reductions: with equal rewards at lp = lp_old it does not move.
    """
    return _regression(RelativeAdvantage(population=True, eps=0.0), TargetSlope(eta))

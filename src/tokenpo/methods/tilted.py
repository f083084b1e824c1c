"""Regression of a group's log-likelihoods to a target that rewards tilt."""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts.credit import RelativeAdvantage
from ..core.parts.loss import ConstantLength
from ..core.parts.part import BatchSignal, CreditStage, Look, Penalty
from ..core.parts.surrogate import Ratio
from ..core.ranges import Positive
from ..core.types import Batch, Rollouts, Trust
from .paper import Paper
from .responses import AnyPolicy


class GroupSlope(BatchSignal):
    """A slope of each response at its tokens [N, T], from the responses of its group in the step; 0 at lp = lp_old."""

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        groups = Groups.of(batch.rollouts.group, batch.mask.any(1))
        slope = self.of(groups, batch).to(batch.policy.logprob.dtype)
        return slope[:, None].expand(batch.mask.shape)

    def of(self, groups: Groups, batch: Batch) -> Tensor:
        """[N] float64, without gradient."""
        raise NotImplementedError


class Sloped(Penalty):
    """slope · lp: its gradient is that of the loss, its value is not."""

    slope: GroupSlope

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return batch.signal(self.slope) * batch.policy.logprob


def _whole(x: Tensor, mask: Tensor) -> Tensor:
    """[N] float64 Σ_t x_it, without gradient."""
    return masked.keep(x.detach(), mask).double().sum(1)


Beta = Annotated[Positive, "reward that a nat of log-ratio is worth"]
Heat = Annotated[Positive, "temperature of the tilt, in deviations of the reward"]


class Drift(GroupSlope):
    """beta n/(n − 1) · (S_i − mean_g S), S the log-ratio of a response."""

    beta: Beta

    def of(self, groups: Groups, batch: Batch) -> Tensor:
        drift, size = _whole(Ratio.log(batch), batch.mask), groups.size()
        return self.beta * (drift - groups.mean_std(drift)[0]) * size / (size - 1).clamp(min=1)


@Paper("Group Variance Policy Optimization", "2504.19599", "code", code="jszkc/GVPO@627aa25:GVPO/gvpo_core_algos.py")
def gvpo(*, beta: Beta = 0.1) -> Objective:
    """Fits the differences of a group's log-ratios to the differences of its rewards.

        S_i = Σ_t log r_it
        L = 1/G Σ_g 1/(n−1) Σ_i ½ (beta (S_i − sg[mean_g S]) − (R_i − mean_g R))²,   n responses in each of G groups
        −∂L/∂lp_it = beta/N · n/(n−1) · (R_i − mean_g R − beta (S_i − mean_g S))

    L is least where S_i − R_i/beta is the same for the whole group: the policy tilted by e^(R/beta), whose normaliser
    the differences leave out. There is no ratio and no clip, and any policy may have sampled.
    Defaults: beta 0.1 (code).
    Departures: the value shown is not L, whose slope is taken. The authors' sum is over a micro-batch. If an update
    holds a part of a group, mean_g S is of that part.
    Reductions: at lp = lp_old the gradient is beta times the one with RLOO's advantage and a token sum.
    """
    credit, penalties = RelativeAdvantage(std="none", leave_one_out=True), (Sloped(Drift(beta)),)
    return Objective(credit, AnyPolicy(), ConstantLength(1 / beta), penalties=penalties)


def _shares(groups: Groups, x: Tensor) -> Tensor:
    """[N] softmax of x [N] within each group, float64."""
    each = torch.where(groups.valid, (x - groups.extremes(x)[1]).exp(), 0.0)
    return each / groups.sum(each).clamp(min=1e-300)


class TargetGap(CreditStage):
    """n (q_i − p_i): p the softmax of a group's old log-likelihoods, q of these plus z / eta; exactly 0 where z = 0."""

    eta: Heat
    score: RelativeAdvantage = RelativeAdvantage(population=True, eps=0.0)

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups, old = Groups.of(rollouts.group, rollouts.mask.any(1)), _whole(rollouts.old_logprob, rollouts.mask)
        tilt = self.score.of(groups, rollouts.reward + bonus) / self.eta
        gap = groups.size() * (_shares(groups, old + tilt) - _shares(groups, old))
        return gap[:, None].expand(rollouts.mask.shape)


class Moved(GroupSlope):
    """n (p_i − p_old,i), p the softmax of a group's log-likelihoods."""

    def of(self, groups: Groups, batch: Batch) -> Tensor:
        new, old = (_whole(x, batch.mask) for x in (batch.policy.logprob, batch.rollouts.old_logprob))
        return groups.size() * (_shares(groups, new) - _shares(groups, old))


@Paper("Target Policy Optimization", "2604.06159", "code", code="JeanKaddour/tpo@6fc6e90:src/tpo/algorithms.py")
def target_po(*, eta: Heat = 1.0) -> Objective:
    """Fits the shares that a group's responses have of its likelihood to shares tilted by their rewards.

        z_i = (R_i − mean_g R) / std_g R,   std with ddof 0;   0 where all rewards are equal
        q = softmax_g(Σ_t lp_old,it + z_i / eta),   p = softmax_g(Σ_t lp_it)
        L = −1/G Σ_g Σ_i q_i log p_i;   −∂L/∂lp_it = (q_i − p_i) / G

    The push is bounded by 1 and ends where p = q, without a clip.
    Defaults: eta 1 (code).
    Departures: the loss is taken through its slope, so the value shown is not L. If an update holds a part of a group,
    p is of that part.
    Reductions: with equal rewards at lp = lp_old it does not move.
    """
    return Objective(TargetGap(eta), AnyPolicy(), ConstantLength(1.0), penalties=(Sloped(Moved()),))

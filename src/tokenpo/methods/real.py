"""REAL: rewards as labels; the responses of a group are classified by how much likelier they have become.

    s_i = mean_t log r_it;   right: R_i > mean_g R, wrong: the others of a group that has both
    L_g = log(1 + Σ_right e^(−s_i/tau)) + log(1 + Σ_wrong e^(s_i/tau)),   0 for a group with one class
    L = 1/G Σ_g L_g,   G: all groups of the step
    J = 1/G Σ_i sg[−∂L_g/∂s_i] · mean_t lp_it

There is no advantage and no clip: the push on a response is a softmax weight in its group, at most 1/tau, that fades
once the response is far on its side. The loss joins all responses of a group, so phase two first looks at the whole
step and takes the slope of each response; J has the gradient of −L at that point, but not its value.
Defaults: tau 0.5 (ms-swift's documentation, which quotes the paper).
Departures: ms-swift divides by the groups of a micro-batch; here L is divided by those of the step. If an update holds
only part of a group, its rows in the update are classified. Log-ratios are bounded to ±20.
Reductions: at lp = lp_old, n right and m wrong: a right response is pushed by 1/(tau (n + 1)), a wrong one by
1/(tau (m + 1)) down, spread over its tokens.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts import BatchSignal, CreditStage, LogLikelihood, Look, Ratio, SequenceMean, SignalWeight
from ..core.ranges import Positive
from ..core.types import Batch, Rollouts
from .paper import Paper


class Label(CreditStage):
    """1 for a response above the mean reward of its group, −1 for the others; 0 where all rewards are equal."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups, reward = Groups.of(rollouts.group, rollouts.mask.any(1)), rollouts.reward + bonus
        label = torch.where(groups.above_mean(reward), 1.0, -1.0) * groups.varied(reward)
        return label.to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)


class Slope(BatchSignal):
    """|∂L_g/∂s_i| · N/G of each response, at its tokens [N, T]; `SequenceMean` makes it the mean over groups."""

    tau: Positive

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        alive = batch.mask.any(1)
        groups = Groups.of(batch.rollouts.group, alive)
        label = masked.mean(batch.credit.advantage, batch.mask, dim=1)[:, 0].sign()
        score = masked.mean(Ratio.log(batch).detach(), batch.mask, dim=1)[:, 0]
        power = -label * score / self.tau
        right, wrong = ((label == sign) & alive for sign in (1, -1))
        # Each class's powers less their largest, or 0: an exponential may overflow.
        tops = [groups.extremes(torch.where(some, power, 0.0))[1].clamp(min=0) for some in (right, wrong)]
        top = torch.where(label > 0, *tops)
        each = (power - top).exp()
        sums = [groups.sum(torch.where(some, each, 0.0)) for some in (right, wrong)]
        slope = each / ((-top).exp() + torch.where(label > 0, *sums)) / self.tau
        # An update that holds one class of a group cannot classify it.
        both = (groups.sum(right.long()) > 0) & (groups.sum(wrong.long()) > 0)
        slope = torch.where(both, slope, 0.0)
        share = alive.sum().to(slope.dtype) / len(batch.rollouts.group[alive].unique())
        return (share * slope)[:, None].expand(batch.mask.shape)


class ByLabel(LogLikelihood):
    """±lp, off-policy too: its weight depends on the response's log-ratio."""

    assumes_on_policy = False


@Paper(
    "Rewards as Labels: Revisiting RLVR from a Classification Perspective",
    "2602.05630",
    "code",
    "a framework's code and documentation; the paper was not read",
    code="modelscope/ms-swift@3602360:swift/rlhf_trainers/grpo_trainer.py",
)
def real(*, tau: Annotated[Positive, "temperature of the classification, nats per token"] = 0.5) -> Objective:
    """Classifies the right and wrong responses of a group by their mean log-ratio."""
    return Objective(Label(), ByLabel(), SequenceMean(), weights=(SignalWeight(Slope(tau)),))

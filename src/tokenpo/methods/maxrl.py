"""MaxRL: from the probability of a right answer to its logarithm.

    J = E log p rather than E p, p the probability of a right answer;   −log p = Σ_{k ≥ 1} (1 − p)^k / k
    practical   A_i = (R_i − mean_g R) / (mean_g R + eps)
    kept        the same, and A_i = −1 where no answer is right
    none        A_i = R_i / (mean_g R + eps)
    order T     A_i = 1 where R_i > 0, else −Σ_{k=2}^{min(T, f)} C(f−1, k−1) / C(G−1, k−1),   f wrong ones of G
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   at least dual · A_i where A_i < 0

Hard prompts count more: with K of G right a right answer gets G/K − 1, a wrong one −1.
Defaults: the practical estimator and eps 1e-6 (the authors' code). Clip 0.2/0.2 and dual clip 3 are those of their runs
as others report them. The token mean is ours, their framework's default.
Options: "none" is an unbiased estimate of the series truncated at T = G, as is "kept", with less variance; "practical"
truncates at T = G − 1 (all second-hand). `order` truncates at T, without a baseline; its advantages are G times the
authors' weights, whose sum over the group stands for our mean.
Departures: a group of one has advantage 0; the authors' code gives it R/eps. A negative reward is an error: the mean is
a probability here. Leave-one-out, cross-fitted and subset estimators are not implemented.
Reductions: with as many right as wrong answers the practical form is GRPO's with the population deviation. R − mean in
place of (R − mean)/mean is Dr. GRPO's advantage. order = 1 is REINFORCE on right answers, without a baseline.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import Clip, CreditStage, FixedBounds, TokenMean
from ..core.ranges import POSITIVE, Count
from ..core.types import Rollouts
from .options import Dual, High, Low
from .paper import Paper


class OverMean(CreditStage):
    """The reward over the group's mean reward, less 1 if `centred`; `hopeless` gives −1 where no answer is right."""

    centred: bool = True
    hopeless: bool = False
    eps: Annotated[float, POSITIVE.because("as a group without a right answer has mean 0")] = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups, reward = _comparable(rollouts, bonus)
        mean = groups.mean_std(reward)[0]
        if self.centred:
            advantage = torch.where(groups.varied(reward), (reward - mean) / (mean + self.eps), 0.0)
        else:
            advantage = reward / (mean + self.eps)
        if self.hopeless:
            advantage = torch.where(mean > 0, advantage, -1.0)
        return torch.where(groups.size() > 1, advantage, 0.0)[:, None].expand(rollouts.mask.shape)


class Truncated(CreditStage):
    """1 for right answers; for wrong ones minus the sum of the terms 2 to `order` of the series of log p."""

    order: Count

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups, reward = _comparable(rollouts, bonus)
        size = groups.size()
        wrong = groups.sum((reward <= 0).double())
        term, total = torch.ones_like(reward), torch.zeros_like(reward)
        for k in range(1, min(self.order, int(wrong.max()))):
            # C(f−1, k) / C(G−1, k) from its predecessor; 0 from k = f on.
            term = term * (wrong - k) / (size - k).clamp(min=1)
            total = total + term
        advantage = torch.where(reward > 0, 1.0, -total)
        return torch.where(size > 1, advantage, 0.0)[:, None].expand(rollouts.mask.shape)


def _comparable(rollouts: Rollouts, bonus: Tensor) -> tuple[Groups, Tensor]:
    """The groups and their rewards [N], which must not be negative."""
    groups = Groups.of(rollouts.group, rollouts.mask.any(1))
    reward = rollouts.reward + bonus
    if (reward[groups.valid] < 0).any():
        raise TokenPOError(
            f"maxrl needs rewards >= 0, whose mean is a rate of success, got {float(reward[groups.valid].min()):g}: "
            "give rewards of 0 and 1, and leave out penalties on the length"
        )
    return groups, reward


@Paper(
    "Maximum Likelihood Reinforcement Learning",
    "2602.02710",
    "code",
    "the aggregate; clip and the truncation of each baseline are second-hand",
    code="tajwarfahim/maxrl@c0698eb:verl/trainer/ppo/core_algos.py",
)
def maxrl(
    *,
    baseline: Annotated[
        Literal["practical", "kept", "none"], "advantage of a group without a right answer: 0, −1, or no baseline"
    ] = "practical",
    order: Annotated[Count | None, "truncate the series of log p here, in place of a baseline"] = None,
    low: Low = 0.2,
    high: High = 0.2,
    dual: Dual = 3.0,
) -> Objective:
    """The advantage is relative to the prompt's rate of success, so that hard prompts count more."""
    over_mean = {"practical": OverMean(), "kept": OverMean(hopeless=True), "none": OverMean(centred=False)}[baseline]
    if order is not None and baseline != "practical":
        raise TokenPOError(f"maxrl: order = {order} takes the place of the baseline: leave out baseline = {baseline!r}")
    credit = over_mean if order is None else Truncated(order)
    return Objective(credit, Clip(FixedBounds(low, high), dual=dual), TokenMean())

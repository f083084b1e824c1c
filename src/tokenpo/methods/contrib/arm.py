"""ARM (ProGRPO): the advantage falls with the confidence in the response, relative to that in the prompt.

    c(o_i) = exp(mean lp_old of its ⌈fraction · |o_i|⌉ least probable tokens),   c(q) = exp(mean lp_old of the prompt)
    A_i = (R_i − mean_g R) / (std_g R + 1e-6) + alpha · (c(q) − c(o_i))
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

A group whose rewards are all equal keeps advantage 0. Shifts of a group sum to alpha · (G c(q) − Σ_i c(o_i)), not to 0.
Defaults: fraction 0.2, clip 0.2/0.28 (second-hand); alpha 0.1 (ours; the value was not found).
Options: only_correct=True shifts only responses whose reward exceeds the group's mean, as the abstract says; the
formula shifts all.
Departures: confidences are the old policy's, at the temperature of sampling; c(q) leaves out the prompt's first token.
At least one token of a response counts.
Reductions: alpha = 0 is DAPO with dual=None.
"""

from typing import Annotated

import torch
from torch import Tensor

from ...core.facts import LOGPROB, Fact
from ...core.objective import Objective
from ...core.ops import masked
from ...core.ops.group import Groups
from ...core.parts import Clip, CreditStage, FixedBounds, GroupAdvantage, Sampler, Supplied, TokenMean
from ...core.ranges import Finite, Fraction
from ...core.types import Rollouts
from ..options import High, Low
from ..paper import Paper

Shift = Annotated[Finite, "size of the shift; 0 switches it off"]
Least = Annotated[Fraction, "share of a response's tokens, the least probable, whose geometric mean is its confidence"]
OnlyRight = Annotated[bool, "shift only the responses whose reward exceeds the group's mean"]


class PromptLogprob(Supplied):
    """The mean log-probability of a token of the prompt under the old policy."""

    gives = "prompt_logprob"
    fact = Fact("mean log-probability of a token of the prompt under the old policy", LOGPROB, shape="[N]")

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        return sampler.prompt_logprob(rollouts)


class ConfidenceShift(CreditStage):
    """The group's advantage plus alpha · (confidence in the prompt − confidence in the response)."""

    alpha: Shift
    fraction: Least
    only_correct: OnlyRight
    group: GroupAdvantage = GroupAdvantage()
    prompt: PromptLogprob = PromptLogprob()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        moved = groups.above_mean(reward) if self.only_correct else groups.varied(reward)
        gap = rollouts.need("prompt_logprob").double().exp() - self._confidence(rollouts)
        advantage = self.group.of(groups, reward).double() + torch.where(moved, self.alpha * gap, 0.0)
        return advantage[:, None].expand(rollouts.mask.shape)

    def _confidence(self, rollouts: Rollouts) -> Tensor:
        """[N] geometric mean of the probabilities of a response's least probable tokens."""
        ranked = rollouts.old_logprob.double().masked_fill(~rollouts.mask, torch.inf).sort(1).values
        # 1e-4: the rounding of the product must not add a token.
        count = (self.fraction * rollouts.mask.sum(1, keepdim=True).double() - 1e-4).ceil().clamp(min=1)
        least = torch.arange(ranked.shape[1], device=ranked.device) < count
        return masked.mean(ranked, least, dim=1)[:, 0].exp()


@Paper(
    "Back to Basics: Revisiting Exploration in Reinforcement Learning for LLM Reasoning via Generative Probabilities",
    "2602.05281",
    "second-hand",
    "alpha, the tokens of the prompt that count, and the responses that are moved are open",
)
def arm(
    *, alpha: Shift = 0.1, fraction: Least = 0.2, only_correct: OnlyRight = False, low: Low = 0.2, high: High = 0.28
) -> Objective:
    """Advantages fall with the policy's confidence in the response and rise with its confidence in the prompt."""
    shifted = ConfidenceShift(alpha, fraction, only_correct)
    return Objective(shifted if alpha else shifted.group, Clip(FixedBounds(low, high)), TokenMean())

"""ReMax: the baseline is the reward of a greedy response to the same prompt.

    A_i = R_i − b_i,   b_i = R(greedy response to the prompt of i)      (`baseline`)
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

The baseline does not depend on the response, so the gradient is unbiased, and a group of one learns.
Defaults: low = high = 0.2 and the token mean are the usual loss of a framework that offers ReMax as an estimator.
Departures: the paper's loss is the unclipped policy gradient of whole sequences, of one response to a prompt. Rewards
of single tokens are not read: every token gets the whole reward of its response.
Reductions: where b is the mean of the group's rewards it is Dr. GRPO's advantage.
Note: the greedy response costs sampled tokens: `continued_tokens` of a run counts them.
"""

from torch import Tensor

from ..core.facts import Fact
from ..core.objective import Objective
from ..core.parts import Clip, CreditStage, FixedBounds, Sampler, Supplied, TokenMean
from ..core.types import Rollouts
from .options import High, Low
from .paper import VERL, Paper


class Greedy(Supplied):
    """The reward of a greedy response to the prompt."""

    gives = "baseline"
    fact = Fact("the reward of a greedy response to the prompt", shape="[N]")

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        return sampler.greedy(rollouts)


class OverBaseline(CreditStage):
    """R_i − b_i."""

    by: Greedy = Greedy()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        advantage = (rollouts.reward + bonus).double() - rollouts.need("baseline").double()
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper(
    "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language Models",
    "2310.10505",
    "code",
    "a framework's estimator was read, not the authors' code",
    code=VERL,
)
def remax(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The advantage is the reward minus that of a greedy response."""
    return Objective(OverBaseline(), Clip(FixedBounds(low, high)), TokenMean())

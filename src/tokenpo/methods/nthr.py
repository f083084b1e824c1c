"""NTHR: in wrong responses, the tokens that also make right ones likely are pushed down less.

The text that was read lacks the displayed formulas; they are from an implementation note that agrees with it.

    s_jk = Σ_{i right} Σ_l ⟨g_jk, g_il⟩ ⟨h_jk, h_il⟩,   g = one-hot − π_old, h the final hidden state   (`influence`)
    tau  = beta · min_{i right} 1/|o_i| Σ_k s_ik
    A_jk = eta · A_j where j is wrong and s_jk > tau, else A_j;   eta = 2 |1/2 − share of right responses|
    J = GRPO's with A_jk in place of A_j

A step on token k of response j changes the log-likelihood of the right responses by s_jk times its advantage, to first
order in the weights of the head: a wrong token with a large s drags them down.
Defaults: beta 1, eta as above, clip 0.2/0.2, kl 1e-4 against the reference (paper, section 7.3). The paper's
dynamic sampling is a setting of the engine.
Departures: right means a reward above the group's mean, as rewards need not be binary. s runs over the whole
vocabulary; the paper restricts it to the tokens that occur in the group. The mean of a right response counts its
influence on itself. tau can be negative, and then nearly every wrong token is selected.
Reductions: eta = 1 is GRPO with beta = kl. beta = inf is too, where the right responses help each other; beta = −inf
with eta = 0 then learns from right responses alone.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, GroupAdvantage, ReferenceKl, SequenceMean, Signal, SignalWeight
from ..core.parts.influence import sides
from ..core.ranges import NotNegative, Number
from ..core.types import Rollouts
from .options import Beta, High, Low
from .paper import Paper

Beyond = Annotated[Number, "influence threshold, as a multiple of a right response's least mean; may be ±inf"]
Factor = Annotated[NotNegative | None, "factor on selected tokens; None uses 2 |1/2 − share of right responses|"]


class SparedTokens(Signal):
    """eta at the tokens of wrong responses whose influence on the right ones exceeds the threshold, 1 elsewhere."""

    reads = {"influence"}
    beta: Beyond
    eta: Factor

    def __call__(self, rollouts: Rollouts) -> Tensor:
        influence = rollouts.need("influence")
        _, wrong, share, least = sides(rollouts)
        selected = wrong[:, None] & (influence.double() > (self.beta * least)[:, None])
        eta = 2 * (0.5 - share).abs() if self.eta is None else torch.full_like(share, self.eta)
        return torch.where(selected, eta[:, None], 1.0).to(influence.dtype)


@Paper(
    "On the Effect of Negative Gradient in Group Relative Deep Reinforcement Optimization",
    "2505.18830",
    "paper",
    "the displayed formulas are from an implementation note; that a response's mean counts its influence on itself is "
    "our reading",
)
def nthr(*, beta: Beyond = 1.0, eta: Factor = None, low: Low = 0.2, high: High = 0.2, kl: Beta = 1e-4) -> Objective:
    """Pushes down less the tokens of wrong responses that make right responses likely."""
    penalties = (ReferenceKl(kl),) if kl else ()
    weights = (SignalWeight(SparedTokens(beta, eta)),)
    return Objective(
        GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=weights, penalties=penalties
    )

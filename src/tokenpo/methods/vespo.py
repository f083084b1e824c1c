"""VESPO (appendix): a soft weight of the whole response's likelihood ratio in place of a clip.

    log W_i = Σ_t log r_it, bounded to [log 1e-8, 20]
    φ(W) = e^lambda · W^k · e^(−lambda W),   its constants by the sign of A_i (0 counts as positive)
    J = 1/Σ|o_i| Σ_i Σ_t sg[φ(W_i)] · A_i · lp_it

φ(1) = 1, and the largest weight is at W = k/lambda: with the defaults at 2/3 for right answers, at 1.5 for wrong ones.
Defaults: k 2 and lambda 3 where A ≥ 0, k 3 and lambda 2 where A < 0 (the authors' code and a framework's; the docstring
of the authors' code has other numbers).
As in both codes, a lambda below 1e-4 counts as 1e-4, and a φ that overflows as 0.
Departures: the anchor is the old policy; TRL puts the framework's correction for the sampler into W, by
`SoftWeight.inside`. The authors' code takes the token mean of the micro-batch. W is a product: for long responses it is
far from 1.
Reductions: at lp = lp_old the gradient is that of REINFORCE with group advantages, DAPO's. Up to the factor
e^(1e-4 (1 − W)), k = lambda = 0 is that for any W, and k = 1, lambda = 0 is the importance weight of whole responses.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import ratio
from ..core.parts import BatchWeight, GroupAdvantage, Part, Ratio, SurrogateStage, TokenMean
from ..core.ranges import NotNegative
from ..core.types import Batch, Trust
from .paper import TRL, Paper

LEAST = math.log(1e-8)
LEAST_RATE = 1e-4


class Gamma(Part):
    """φ(W) = e^rate · W^shape · e^(−rate W): the shape of a gamma distribution's density, scaled to φ(1) = 1."""

    shape: NotNegative
    rate: NotNegative

    def __call__(self, log_weight: Tensor) -> Tensor:
        rate = max(self.rate, LEAST_RATE)
        log = rate + self.shape * log_weight - rate * log_weight.exp()
        return log.exp().nan_to_num(posinf=0.0)


class SoftWeight(SurrogateStage):
    """sg[φ(W)] · A · lp with the ratio W of the whole response; φ by the sign of the advantage, 0 counts as positive.

    `inside`: weights of tokens that W is multiplied by, their logarithms bounded to [log 1e-8, 20].
    """

    own_slope = True
    positive: Gamma
    negative: Gamma
    inside: BatchWeight | None = None

    def __call__(self, batch: Batch) -> Trust:
        advantage = batch.credit.advantage
        log = Ratio.log(batch).detach()
        if self.inside is not None:
            log = log + self.inside.of_batch(batch).log().clamp(LEAST, ratio.BOUND)
        log_weight = ratio.log_product(log, batch.mask, floor=LEAST)
        phi = torch.where(advantage < 0, self.negative(log_weight), self.positive(log_weight))
        # Only a weight that rounding made 0 takes a token's gradient away.
        gone = (phi == 0) & (advantage != 0)
        return Trust(phi * advantage * batch.policy.logprob, log_weight.exp(), 0.0, math.inf, gone)


@Paper(
    "VESPO: Variational Sequence-Level Soft Policy Optimization for Stable Off-Policy LLM Training",
    "2602.10693",
    "code",
    "the constants: the authors' docstring contradicts their code; of the paper only the pseudocode was read",
    code=f"FloyedShen/VESPO@aa1f304:recipe/vespo/code/core_algos.py; {TRL}",
)
def vespo(
    *,
    k_pos: Annotated[NotNegative, "power of the response's ratio, where the advantage is positive"] = 2.0,
    lambda_pos: Annotated[NotNegative, "decay with the ratio, where the advantage is positive"] = 3.0,
    k_neg: Annotated[NotNegative, "power of the ratio, where the advantage is negative"] = 3.0,
    lambda_neg: Annotated[NotNegative, "decay with the ratio, where the advantage is negative"] = 2.0,
) -> Objective:
    """Weights the policy gradient by a smooth function of the whole response's likelihood ratio."""
    return Objective(GroupAdvantage(), SoftWeight(Gamma(k_pos, lambda_pos), Gamma(k_neg, lambda_neg)), TokenMean())

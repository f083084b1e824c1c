"""Lopti: low-probability token isolation, two optimiser passes over a rollout batch.

Paper: Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs (2505.12929); provenance: code.

    pass 1: the tokens with p_old < eta;   pass 2: the others
    w_it = a · p_old,it + 1 − a
    J_pass = 1/Σ|o_i| Σ_{it in pass} [ w_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

The improbable tokens, whose gradients are the largest, move the policy first; the probable ones then learn on a policy
that has moved. The denominator counts every token in both passes; credit and old log-probs are computed once.
Defaults: eta 0.4, a 0 (no reweighting), clip 0.2/0.24, dual clip 10, k3 coefficient 0.001: the authors' script for
Lopti alone. Their script for both uses eta 0.5 and a 0.3 (Advantage Reweighting).
Options: high_first reverses the order, the paper's ablation (a negative threshold in the authors' code).
Departures: the authors' code bounds log π_ref/π to ±5 and k3 to 10: bounded_kl=True. The mean is over the optimiser
step (the authors' code: per micro-batch). An engine makes every pass over all minibatches, empty ones included.
Reductions: the losses of the passes add up to Advantage Reweighting's at the same weights; a = 0 is DAPO plus the
penalty.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Selection
from ..core.ranges import Share, inside
from ..core.types import Batch
from .adv_reweight import adv_reweight
from .options import Beta, BoundedKl, Dual, High, Low
from .paper import Paper

Between = Annotated[float, inside(0, 1).because("or one of the passes would be empty")]


@dataclass(frozen=True)
class OldProbability(Selection):
    """Tokens whose probability under the old policy is below a threshold, or those where it is not."""

    threshold: Between
    below: bool = True

    def __call__(self, batch: Batch) -> Tensor:
        return (batch.rollouts.old_logprob.exp() < self.threshold) == self.below


@Paper(
    "Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs", "2505.12929", "code",
    code="zhyang2226/AR-Lopti@cbeb333:verl/trainer/ppo/core_algos.py; "
    "zhyang2226/AR-Lopti@cbeb333:verl/trainer/ppo/ray_trainer.py",
)  # fmt: skip
def lopti(
    *,
    eta: Annotated[Between, "probability that divides the tokens between the passes"] = 0.4,
    a: Annotated[Share, "Advantage Reweighting's strength; 0 weighs all tokens alike"] = 0.0,
    high_first: Annotated[bool, "the probable tokens first"] = False,
    low: Low = 0.2,
    high: High = 0.24,
    dual: Dual = 10.0,
    beta: Beta = 1e-3,
    bounded_kl: BoundedKl = False,
) -> Objective:
    """Improbable tokens first, then the rest, in two optimiser passes."""
    whole = adv_reweight(low=low, high=high, dual=dual, a=a, beta=beta, bounded_kl=bounded_kl)
    passes = tuple(OldProbability(eta, below) for below in (not high_first, high_first))
    return dataclasses.replace(whole, name="lopti", passes=passes, weights=whole.weights if a else ())

"""GKD on the student's own samples: the whole next-token distribution is compared with the teacher's.

    D_it = beta KL(q ‖ m) + (1 − beta) KL(p ‖ m),   m = beta q + (1 − beta) p      (eq. 1)
    D_it = KL(q ‖ p) at beta = 0,   KL(p ‖ q) at beta = 1
    J = 1/Σ|o_i| Σ_i Σ_t [ −coef · D_it + r_it (R_i − mean_g R), the last with rewards=True ]

p is the current policy and q the teacher at token t, over the vocabulary. The gradient is that of D at the sampled
states, as if the policy did not choose them; it has no noise from the sampled token and needs no ratio for it.
Defaults: beta 0.5 and coef 1 as in the code; no rewards.
Departures: the code mixes in responses of a data set (its `lmbda`); here all are the student's. It computes the loss at
temperature 1 whatever the temperature of sampling; here both are the same. How the paper weighs rewards was not read.
Notes: the divergence vanishes toward both ends of beta, as beta KL(q ‖ p) and (1 − beta) KL(p ‖ q), and jumps at
exactly 0 and 1: choose the learning rate with beta. The teacher has the student's vocabulary and temperature, and as
many logits as the policy's own pass. On responses of an older policy the states are that one's.
Reductions: where the teacher is the policy, D and its gradient are 0, and rewards alone are left. With beta = 1 the
gradient on policy is that of `opd` with gamma = 0, in expectation over the sampled token.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import GroupAdvantage, NoCredit, TeacherDivergence, TokenMean, Unclipped
from ..core.ranges import Positive, Share
from .paper import Paper


@Paper(
    "On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes",
    "2306.13649",
    "code",
    "the loss of a framework was read, not the paper",
    code="trl 1.16.0:trl/experimental/gkd/gkd_trainer.py",
)
def gkd(
    *,
    beta: Annotated[Share, "0 is the forward, 1 the reverse divergence, between is Jensen-Shannon's"] = 0.5,
    coef: Annotated[Positive, "coefficient of the divergence, per nat"] = 1.0,
    rewards: Annotated[bool, "add the reward less its group's mean as an advantage"] = False,
) -> Objective:
    """Moves every next-token distribution toward the teacher's."""
    credit = GroupAdvantage(std=False) if rewards else NoCredit()
    return Objective(credit, Unclipped(), TokenMean(), penalties=(TeacherDivergence(coef, beta),))

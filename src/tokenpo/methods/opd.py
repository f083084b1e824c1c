"""On-policy distillation: the log-ratio to a teacher is the reward of every token that the student samples.

    x_it = log q(y_it) − lp_old,it,   q the teacher, in its own context      (`teacher_logprob`)
    A_it = [ R_i − mean_g R + ] coef · clip(Σ_{k≥t} gamma^(k−t) x_ik, −bound, bound)
    J = 1/Σ|o_i| Σ_i Σ_t r_it A_it

Expected gradient, on policy: with gamma = 0 that of KL(π ‖ q) at the sampled states, as if the policy did not choose
them; with gamma = 1 that of the divergence of whole responses, up to the token mean's denominator. With gamma = 1 every
further token costs reward, which favours short responses. With a bound it is neither gradient, but is 0 where π = q.
Defaults: coef 1, gamma 0, no clip of the ratio (code); no bound.
Departures: the code sums over tokens; J is a token mean. x compares the teacher with the old policy; the code compares
it with the policy that sampled, which the correction "bypass" does here. The bound is ours, and x is within ±20.
Notes: groups of equal rewards still have the teacher's credit: leave dynamic sampling off. With rewards, A adds a
reward to nats, so coef has a unit. The teacher needs the student's tokenizer and temperature: log-probabilities at
another temperature cannot be rescaled afterwards. `tokenpo.with_teacher` adds the same credit to any method.
Reductions: without rewards and with gamma = 0 each token stands alone. Where the teacher is the old policy, the rewards
alone are left: the unclipped policy gradient with Dr. GRPO's advantage.
"""

import math
from typing import Annotated

from ..core.objective import Objective
from ..core.parts import GroupAdvantage, TeacherCredit, TokenMean, Unclipped
from ..core.ranges import AboveZero, Positive, Share
from .paper import Paper


@Paper(
    "MiniLLM",
    "2306.08543",
    "code",
    "the form is tinker-cookbook's, after a post of Thinking Machines of 2025; neither post nor paper was read",
    code="thinking-machines-lab/tinker-cookbook@0333e7c:tinker_cookbook/distillation/train_on_policy.py",
)
def opd(
    *,
    coef: Annotated[Positive, "advantage per nat of the teacher's log-ratio"] = 1.0,
    gamma: Annotated[Share, "discount of later tokens; 0 credits a token with itself alone"] = 0.0,
    bound: Annotated[AboveZero, "nats that bound the teacher's credit; inf is no bound"] = math.inf,
    rewards: Annotated[bool, "add the reward less its group's mean"] = False,
) -> Objective:
    """Rewards every token of the student's own responses with a teacher's log-ratio."""
    inner = GroupAdvantage(std=False) if rewards else None
    return Objective(TeacherCredit(inner, coef, gamma, bound), Unclipped(), TokenMean())

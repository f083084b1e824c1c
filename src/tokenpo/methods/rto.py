"""RTO: PPO with a critic whose rewards at tokens come from a model that was trained by DPO.

    r_it = clip(dpo · (log π_dpo − log π_ref), ±bound) − beta · (log π_old − log π_ref) + 1[last token] · R_i
    A_it = Σ_k lam^k δ_i,t+k,   δ_it = r_it + V_i,t+1 − V_it,   whitened over the tokens of the batch
    J = 1/N Σ_i 1/|o_i| Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)
    L_critic as in ppo, its target V + A with the same lam

π_dpo is the teacher, `Rollouts.teacher_logprob`: in a recipe `teacher.path` names the model that DPO trained, and π_ref
is the model that training starts from.
Defaults: dpo and bound 0.05 (the authors' script), beta 0.01, lam 0.95, clip 0.2/0.2, value_clip 0.2 and the mean of
response means, as in OpenRLHF, from which the authors' code is derived (its loss was read in copies).
Departures: the authors bound the reward of a response to ±10. The critic's loss is a mean over tokens here. log π_dpo −
log π_ref is bounded to ±20.
Note: π_dpo rewards a token whether the response is right or not; a large dpo trains toward π_dpo.
Reductions: dpo = 0 with responses of one length is PPO.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, SequenceMean
from ..core.parts.critic import Critic, Gae, TokenRewards
from ..core.ranges import AboveZero, NotNegative
from .options import High, Low
from .paper import Paper
from .ppo import Lambda, ValueClip, Whitened


@Paper(
    "DPO Meets PPO: Reinforced Token Optimization for RLHF",
    "2404.18922",
    "code",
    code="zkshan2002/RTO@f2c1294:openrlhf/trainer/ppo_utils/experience_maker.py; "
    "zkshan2002/RTO@f2c1294:openrlhf/models/utils.py; zkshan2002/RTO@f2c1294:examples/scripts/train_rto_llama_8b.sh",
)
def rto(
    *,
    dpo: Annotated[NotNegative, "coefficient of log π_dpo − log π_ref, the token's reward; 0 needs no teacher"] = 0.05,
    bound: Annotated[AboveZero, "bound of that reward, in units of the response's reward; inf is none"] = 0.05,
    beta: Annotated[NotNegative, "coefficient of the divergence from the reference in the rewards"] = 0.01,
    lam: Lambda = 0.95,
    low: Low = 0.2,
    high: High = 0.2,
    value_clip: ValueClip = 0.2,
    whiten: Whitened = True,
) -> Objective:
    """PPO whose tokens each earn the log-ratio of a DPO-trained model to the reference, and the last the reward too."""
    rewards = TokenRewards(beta, teacher=dpo, bound=bound)
    critic = Critic(rewards, lam, clip=value_clip)
    return Objective(Gae(rewards, lam, whitened=whiten), Clip(FixedBounds(low, high)), SequenceMean(), critic=critic)

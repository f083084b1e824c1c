"""Advantages from a critic."""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts.critic import Critic, Gae, LengthLambda, RightLikelihood, RightShare, TokenRewards
from ..core.parts.loss import SequenceMean, TokenMean
from ..core.parts.surrogate import Clip, FixedBounds
from ..core.ranges import AboveZero, Limit, NotNegative, Positive, Share
from .options import High, Low, Threshold
from .paper import VERL, Paper

Lambda = Annotated[Share, "lambda of the advantage; 1 is the return to go less the value"]
CriticLambda = Annotated[Share, "lambda of the critic's target; 1 fits it to returns alone, without its own values"]
Discount = Annotated[Share, "discount of a token"]
ValueClip = Annotated[Limit, "how far a step may move the value, in units of the reward; inf: without bound"]
Whitened = Annotated[bool, "advantages with mean 0 and variance 1 over the tokens of the batch"]


@Paper(
    "Proximal Policy Optimization Algorithms", "1707.06347", "code", code=f"{VERL}; rnilva/eapo-ijcai25@60aaa54:eapo.py"
)
def ppo(
    *,
    lam: Lambda = 1.0,
    critic_lam: CriticLambda = 1.0,
    gamma: Discount = 1.0,
    low: Low = 0.2,
    high: High = 0.2,
    value_clip: ValueClip = 0.5,
    whiten: Whitened = True,
    beta: Annotated[NotNegative, "coefficient of the divergence from the reference in the rewards; 0 needs none"] = 0.0,
    token_reward: Annotated[bool, "rewards arrive at tokens, read from `Rollouts.token_reward`"] = False,
    entropy: Annotated[NotNegative, "coefficient of −log π_old in the reward of a token; 0 switches it off"] = 0.0,
) -> Objective:
    """Uses a learnt value as the baseline of every token and as the estimate of the reward still to come.

        δ_it = R_it + gamma V_i,t+1 − V_it,   V after the last token 0
        R_it = 1[last token] R_i − beta (lp_old − lp_ref) − entropy · lp_old,   all before the update
        A_it = Σ_k (gamma lam)^k δ_i,t+k   (GAE, 1506.02438 eq. 16),   whitened over the tokens of the batch
        G_it = V_it + A'_it,   A' with the critic's own lam and before whitening
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)
        L_critic = 1/Σ|o_i| Σ_i Σ_t ½ max((v_it − G_it)², (clip(v_it, V_it ± value_clip) − G_it)²)

    V and A pass through tokens outside the mask.
    Defaults: as in verl's code, like the whitening and the token mean.
    Options: entropy is the reward of maximum-entropy RL, as a sample of it. Its authors' code (2407.18143) adds it to
    the reward with augmented_reward; coefficients there are 0.01 and 0.02.
    Departures: V after a response that was cut off is 0, as in verl. One critic, gamma and lam serve reward and
    entropy; EAPO has a second critic with its own.
    Reductions: lam = gamma = 1 without whitening is R − V; a V of 0 everywhere then leaves R, and whitened it is
    REINFORCE++. gamma = lam = 0 is the reward of the token less V.
    """
    rewards = TokenRewards(beta, float(token_reward), end=not token_reward, entropy=entropy)
    critic = Critic(rewards, critic_lam, gamma, value_clip)
    return Objective(Gae(rewards, lam, gamma, whiten), Clip(FixedBounds(low, high)), TokenMean(), critic=critic)


@Paper(
    "VAPO: Efficient and Reliable Reinforcement Learning for Advanced Reasoning Tasks",
    "2504.05118",
    "second-hand + reconstructed",
    "the paper's body was not read; NeMo-RL's code was: "
    "NVIDIA-NeMo/RL@7ea279a:nemo_rl/algorithms/advantage_estimator.py",
)
def vapo(
    *,
    alpha: Annotated[Positive, "lam of a response is 1 − 1 / max(alpha · its tokens, 1)"] = 0.05,
    critic_lam: CriticLambda = 1.0,
    low: Low = 0.2,
    high: High = 0.28,
    value_clip: ValueClip = 0.5,
    whiten: Whitened = True,
    coef: Annotated[
        NotNegative, "coefficient of the negative log-likelihood of right responses; 0 switches it off"
    ] = 0.1,
    threshold: Threshold = 0.0,
) -> Objective:
    """PPO whose lambda grows with the length of the response, with a critic fitted to returns.

        lam_i = 1 − 1/max(alpha |o_i|, 1);   δ, A_it, G_it and L_critic as in ppo with gamma = 1
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it) − coef · mean −lp of right responses

    Defaults: alpha 0.05, critic_lam 1 (second-hand; the floor is that of NeMo-RL's code, by which a response of up to
    1/alpha tokens has lam 0); clip 0.2/0.28 and coef 0.1 (second-hand); whitening as in ppo and value_clip 0.5 (ours).
    Departures: the denominator of the NLL, the tokens of right responses, is counted over the rollout batch, in NeMo-RL
    over the micro-batch. V after a response that was cut off is 0, as in NeMo-RL.
    Note: a lam that depends on the length is biased even with the exact V.
    """
    critic = Critic(lam=critic_lam, clip=value_clip)
    penalties = (RightLikelihood(coef, RightShare(threshold)),) if coef else ()
    credit = Gae(lam=LengthLambda(alpha), whitened=whiten)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties, critic=critic)


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
    """PPO whose tokens each earn the log-ratio of a DPO-trained model to the reference, and the last the reward too.

        R_it = clip(dpo · (log π_dpo − log π_ref), ±bound) − beta · (log π_old − log π_ref) + 1[last token] · R_i
        A_it = Σ_k lam^k δ_i,t+k,   δ_it = R_it + V_i,t+1 − V_it,   whitened over the tokens of the batch
        J = 1/N Σ_i 1/|o_i| Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)
        L_critic as in ppo, its target V + A with the same lam

    π_dpo is the teacher, `Rollouts.teacher_logprob`: in a recipe `teacher.path` names the model that DPO trained, and
    π_ref is the model that training starts from.
    Defaults: dpo and bound 0.05 (the authors' script), beta 0.01, lam 0.95, clip 0.2/0.2, value_clip 0.2 and the mean
    of response means, as in OpenRLHF, from which the authors' code is derived (its loss was read in copies).
    Departures: the authors bound the reward of a response to ±10. The critic's loss is a mean over tokens here.
    Reductions: dpo = 0 with responses of one length is PPO.
    """
    rewards = TokenRewards(beta, teacher=dpo, bound=bound)
    critic = Critic(rewards, lam, clip=value_clip)
    return Objective(Gae(rewards, lam, whitened=whiten), Clip(FixedBounds(low, high)), SequenceMean(), critic=critic)

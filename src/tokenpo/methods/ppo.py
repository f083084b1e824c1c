"""PPO with a critic: advantages at every token from a learnt value.

    δ_it = r_it + gamma V_i,t+1 − V_it,   r the reward at the last token,   V after the last token 0
    A_it = Σ_k (gamma lam)^k δ_i,t+k   (GAE, 1506.02438 eq. 16),   whitened over the tokens of the batch
    G_it = V_it + A'_it,   A' with the critic's own lam and before whitening
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it) [ − coef · NLL of right responses ]
    L_critic = 1/Σ|o_i| Σ_i Σ_t ½ max((v_it − G_it)², (clip(v_it, V_it ± value_clip) − G_it)²)

V_it is the value of the critic before token t and before the update. V and A pass through tokens outside the mask.
Defaults of `ppo`: lam = gamma = 1, clip 0.2/0.2, value_clip 0.5, whitening and the token mean, as in verl's code.
Defaults of `vapo`: lam_i = 1 − 1/max(alpha |o_i|, 1) with alpha 0.05, 1 for the critic (second-hand; the floor is that
of NeMo-RL's code, by which a response of up to 1/alpha tokens has lam 0); clip 0.2/0.28 and coef 0.1 (second-hand);
whitening as in ppo and value_clip 0.5 (ours).
Departures: the denominator of vapo's NLL, the tokens of right responses, is counted over the rollout batch; NeMo-RL
counts the micro-batch, whose split then changes the loss. The NLL has no ratio. V after a response that was cut off is
0, as in both frameworks.
Notes: with the exact V every fixed lam gives the exact gradient, without whitening's shift; with any wrong V only
lam = 1 does. A lam that depends on the length is biased even with the exact V.
Reductions: lam = gamma = 1 without whitening is R − V; a V of 0 everywhere then leaves R, and whitened it is
REINFORCE++. gamma = lam = 0 is the reward of the token less V.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, TokenMean
from ..core.parts.critic import Critic, Gae, LengthLambda, RightLikelihood, RightShare, TokenRewards
from ..core.ranges import Limit, NotNegative, Positive, Share
from .options import High, Low, Threshold
from .paper import VERL, Paper

Lambda = Annotated[Share, "lambda of the advantage; 1 is the return to go less the value"]
CriticLambda = Annotated[Share, "lambda of the critic's target; 1 fits it to returns alone, without its own values"]
Discount = Annotated[Share, "discount of a token"]
ValueClip = Annotated[Limit, "how far a step may move the value, in units of the reward; inf is no bound"]
Whitened = Annotated[bool, "advantages with mean 0 and variance 1 over the tokens of the batch"]


@Paper("Proximal Policy Optimization Algorithms", "1707.06347", "code", code=VERL)
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
) -> Objective:
    """Uses a learnt value as the baseline of every token and as the estimate of the reward still to come."""
    rewards = TokenRewards(beta, float(token_reward), end=not token_reward)
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
    """PPO whose lambda grows with the length of the response, with a critic fitted to returns."""
    critic = Critic(lam=critic_lam, clip=value_clip)
    penalties = (RightLikelihood(coef, RightShare(threshold)),) if coef else ()
    credit = Gae(lam=LengthLambda(alpha), whitened=whiten)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties, critic=critic)

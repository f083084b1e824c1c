"""Critics: rewards at tokens, advantages from a learnt value, and the critic's loss."""

import math

import torch
from torch import Tensor

from ..ops.masked import whiten
from ..ops.ratio import log_ratio
from ..ops.turns import gae
from ..ranges import AboveZero, Finite, Limit, NotNegative, Positive, Share
from ..types import Batch, Rollouts, Trust
from .part import CreditStage, Part, Penalty, Signal


class TokenRewards(Part):
    """r_it = token · token_reward − beta · (lp_old − lp_ref) − entropy · lp_old
    + clip(teacher · (lp_teacher − lp_ref), ±bound) + 1[t is the last response token] · R_i.

    Args:
        beta: coefficient of the log-ratio to the reference, ≥ 0; with 0 no reference is read.
        token: factor on `token_reward`; with 0 it is not read.
        end: R_i is the reward plus the shaping's bonus; False makes it the bonus alone, for a `token_reward` that
            already contains the whole reward.
        teacher: coefficient of the log-ratio of teacher to reference (DPO's implicit reward), ≥ 0; with 0 no teacher
            is read.
        bound: limit on the teacher's term of a token, in units of the reward, > 0; inf means none.
        entropy: coefficient of −lp_old, the sampled token's share of the entropy, ≥ 0.
    """

    beta: NotNegative = 0.0
    token: Finite = 0.0
    end: bool = True
    teacher: NotNegative = 0.0
    bound: AboveZero = math.inf
    entropy: NotNegative = 0.0

    @property
    def reads(self) -> set[str]:
        factors = {
            "token_reward": self.token,
            "ref_logprob": self.beta or self.teacher,
            "teacher_logprob": self.teacher,
        }
        return {name for name, factor in factors.items() if factor}

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """[N, T] float64."""
        mask = rollouts.mask
        places = torch.arange(mask.shape[1], device=mask.device)
        last = mask & (places == (mask * places).amax(1, keepdim=True))
        reward = last * ((rollouts.reward if self.end else 0) + bonus).double()[:, None]
        if self.token:
            reward = reward + self.token * rollouts.need("token_reward").double()
        if self.beta:
            reward = reward - self.beta * (rollouts.old_logprob - rollouts.need("ref_logprob")).double()
        if self.entropy:
            reward = reward - self.entropy * rollouts.old_logprob.double()
        if self.teacher:
            x = log_ratio(rollouts.need("teacher_logprob").double(), rollouts.need("ref_logprob"))
            reward = reward + (self.teacher * x).clamp(-self.bound, self.bound)
        return reward


class LengthLambda(Part):
    """λ_i = 1 − 1 / max(alpha · |o_i|, 1), with NeMo-RL's floor at 1: VAPO (2504.05118).

    λ depends on the response's length, so the policy's gradient is biased even with the exact value.
    """

    alpha: Positive

    def __call__(self, mask: Tensor) -> Tensor:
        """[N] float64."""
        return 1 - 1 / (self.alpha * mask.sum(1).double()).clamp(min=1.0)


class Discounted(Part):
    """Generalised advantage estimation, which the policy's advantage and the critic's target share.

    Args:
        rewards: the reward at each token.
        lam: in [0, 1]; 1 is the return to go less the value, 0 the temporal difference.
        gamma: discount per token, in [0, 1].
    """

    reads = {"value"}
    rewards: TokenRewards = TokenRewards()
    lam: Share | LengthLambda = 1.0
    gamma: Share = 1.0

    def advantage(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """[N, T] float64."""
        lam = self.lam(rollouts.mask) if isinstance(self.lam, LengthLambda) else self.lam
        reward = self.rewards(rollouts, bonus)
        return gae(reward, rollouts.need("value"), rollouts.mask, lam, self.gamma)


class Gae(Discounted, CreditStage):
    """A_it by generalised advantage estimation from the critic's `value`, without comparing the group's responses.

    Args:
        whitened: shift and scale to mean 0 and variance 1 over the tokens of the rollout batch.
    """

    whitened: bool = True

    @property
    def across_groups(self) -> bool:
        return self.whitened

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        advantage = self.advantage(rollouts, bonus)
        return whiten(advantage, rollouts.mask) if self.whitened else advantage


class Critic(Discounted):
    """The critic's loss: ½ max((v − G)², (clip(v, V ± clip) − G)²), with target G_it = V_it + A_it(lam).

    v is the value, V the value before the update; A is not whitened. `Objective.value_loss` returns this loss.

    Args:
        clip: largest change of the value in a step, in units of the reward, ≥ 0; inf means no bound.
    """

    clip: Limit = 0.2

    def target(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """[N, T] G, 0 outside the mask."""
        advantage, value = self.advantage(rollouts, bonus), rollouts.need("value")
        return torch.where(rollouts.mask, advantage + value.double(), 0.0).to(value.dtype)

    def loss(self, value: Tensor, old: Tensor, target: Tensor) -> Tensor:
        """[N, T] loss of the tokens, from the critic's value, its value before the update, and the target."""
        near = torch.maximum(torch.minimum(value, old + self.clip), old - self.clip)
        return 0.5 * torch.maximum((value - target) ** 2, (near - target) ** 2)


class RightShare(Signal):
    """(Tokens of the batch) / (tokens of its right responses) on the tokens of right responses; 0 elsewhere.

    A response is right when its reward exceeds the threshold.
    """

    threshold: Finite = 0.0

    def __call__(self, rollouts: Rollouts) -> Tensor:
        right = rollouts.mask & (rollouts.reward > self.threshold)[:, None]
        return (right * (rollouts.mask.sum().double() / right.sum().clamp(min=1))).to(rollouts.old_logprob.dtype)


class RightLikelihood(Penalty):
    """−coef · lp of right responses; under a token mean, −coef times the mean of lp over their tokens.

    Args:
        coef: ≥ 0.
        share: selects the tokens and has their denominator over the rollout batch.
    """

    coef: NotNegative
    share: RightShare = RightShare()

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        share = batch.signal(self.share)
        return torch.where(share > 0, -self.coef * share * batch.policy.logprob, 0.0)

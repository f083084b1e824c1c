"""A teacher's word on sampled tokens, as credit and as a penalty; and on whole distributions.

x_it = log q(y_it) − log p(y_it), with q the teacher and p the student: on the student's own samples its mean is
−KL(p ‖ q). Credit has no gradient of its own and compares q with the old policy, once a rollout batch; a penalty
compares it with the current policy, in every update.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ..ops.ratio import log_ratio
from ..ops.turns import gae
from ..ranges import AboveZero, NotNegative, Share
from ..types import Batch, Rollouts, Trust
from .part import CreditStage, Memory, Penalty
from .penalties import K1, K2, Divergence, Estimator, StraightThrough


class TeacherCredit(CreditStage):
    """A_it = inner_it + coef · clip(Σ_{k≥t} gamma^(k−t) x_ik, ±bound), over response tokens k.

    On policy, in expectation, x with gamma = 0 descends KL(p ‖ q) at the states that were sampled, as if the policy did
    not choose them; with gamma = 1 under a token sum the divergence of whole responses, in which every further token
    costs. A bound descends neither, but is 0 in expectation where p = q. A group whose rewards are all equal keeps this
    credit.

    Args:
        inner: credit of the rewards, to which the teacher's is added after any normalisation; None is no reward, and a
            bonus of shaping is then not read.
        coef: per nat, ≥ 0.
        gamma: discount of a token, in [0, 1]; 0 is the token's own x.
        bound: nats, > 0; inf is none but that of x itself, ±20: of a token that the teacher finds impossible.
    """

    reads = {"teacher_logprob"}
    inner: CreditStage | None = None
    coef: NotNegative = 1.0
    gamma: Share = 0.0
    bound: AboveZero = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.inner, Memory):
            raise TokenPOError(
                f"TeacherCredit cannot hold {self.inner!r}, which carries numbers from batch to batch: add the teacher "
                "as a penalty, TeacherKl"
            )

    @property
    def columns(self) -> int:
        return 1 if self.inner is None else self.inner.columns

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        x = log_ratio(rollouts.need("teacher_logprob").double(), rollouts.old_logprob)
        to_go = gae(x, torch.zeros_like(x), rollouts.mask, 1.0, self.gamma)
        credit = self.coef * to_go.clamp(-self.bound, self.bound)
        return credit if self.inner is None else credit + self.inner(rollouts, bonus)


class NoCredit(CreditStage):
    """0 everywhere: penalties are all that is learnt from."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return torch.zeros_like(rollouts.old_logprob)


class TeacherKl(Divergence):
    """beta · estimator(x): the divergence KL(p ‖ q) from the teacher.

    The default has the value of k1 and the gradient of k2, whose expectation on policy is that of KL(p ‖ q) at the
    sampled states. k3's gradient is that of KL(q ‖ p), with the variance of q / p. The gradient of k1 alone is 0 in
    expectation and does not even read the teacher: refused.

    Args:
        beta: coefficient, ≥ 0.
        estimator: of a token's divergence.
        scale: multiply the divergence of a token by this weight. On rows of an older policy the gradient is biased
            without the ratio as weight.
    """

    reads = {"teacher_logprob"}
    estimator: Estimator = StraightThrough(K1(), K2())

    def __post_init__(self) -> None:
        super().__post_init__()
        learnt = self.estimator.gradient if isinstance(self.estimator, StraightThrough) else self.estimator
        if isinstance(learnt, K1):
            raise TokenPOError(
                f"TeacherKl: on policy the gradient of {self.estimator!r} is 0 in expectation, and free of the "
                "teacher: take StraightThrough(K1(), K2())"
            )

    @property
    def assumes_on_policy(self) -> bool:
        return self.scale is None


class TeacherDivergence(Penalty):
    """coef · D of the whole next-token distributions p of the policy and q of the teacher, differentiated.

    beta = 0 is KL(q ‖ p), which covers what the teacher does; beta = 1 is KL(p ‖ q), which stays where it is likely;
    between lies GKD's Jensen-Shannon divergence, whose gradient vanishes toward both ends (as beta KL(q ‖ p) and
    (1 − beta) KL(p ‖ q)), so that the scale jumps at exactly 0 and 1: choose coef or the learning rate with beta. The
    gradient is that of D at the sampled states, as if the policy did not choose them, with no noise from the token.

    Args:
        coef: ≥ 0.
        beta: in [0, 1]; engines compute the divergence that it names (`Objective.teacher_beta`).
    """

    reads = {"teacher_divergence"}
    coef: NotNegative = 1.0
    beta: Share = 0.5

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.coef * batch.need("teacher_divergence")

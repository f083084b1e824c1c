"""Distillation from a teacher: at the sampled tokens, as credit or as a penalty; or over whole distributions.

x_it = log q(y_it) − log p(y_it), with q the teacher and p the student. Over the student's own samples the mean of x is
−KL(p ‖ q). Credit compares q with the old policy once per rollout batch and carries no gradient; a penalty compares q
with the current policy in every update and is differentiated.
"""

import math

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ..ops.ratio import log_ratio
from ..ops.turns import gae
from ..ranges import AboveZero, NotNegative, Share
from ..types import Batch, Rollouts, Trust
from .loss import K1, K2, Divergence, Estimator, StraightThrough
from .part import CreditStage, Penalty


class TeacherCredit(CreditStage):
    """A_it = inner_it + coef · clip(Σ_{k≥t} gamma^(k−t) x_ik, ±bound), over response tokens k.

    On policy the expected step with gamma = 0 descends KL(p ‖ q) at the sampled states; with gamma = 1, under a token
    sum, that of whole responses. With a finite bound it descends neither, but is still 0 in expectation where p = q.

    Args:
        inner: credit from the rewards, to which the teacher's is added; None uses no reward and no bonus.
        coef: per nat, ≥ 0.
        gamma: discount per token, in [0, 1]; 0 takes the token's own x.
        bound: nats, > 0; with inf only x itself is bounded, to ±20, for tokens that the teacher finds impossible.
    """

    reads = {"teacher_logprob"}
    inner: CreditStage | None = None
    coef: NotNegative = 1.0
    gamma: Share = 0.0
    bound: AboveZero = math.inf

    @property
    def columns(self) -> int:
        return 0 if self.inner is None else self.inner.columns

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        x = log_ratio(rollouts.need("teacher_logprob").double(), rollouts.old_logprob)
        to_go = gae(x, torch.zeros_like(x), rollouts.mask, 1.0, self.gamma)
        credit = self.coef * to_go.clamp(-self.bound, self.bound)
        return credit if self.inner is None else credit + self.inner(rollouts, bonus)


class NoCredit(CreditStage):
    """0 everywhere: only penalties train the policy."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return torch.zeros_like(rollouts.old_logprob)


class TeacherKl(Divergence):
    """beta · estimator(x): the divergence KL(p ‖ q) from the teacher.

    The default has the value of k1 and the gradient of k2, which on policy is that of KL(p ‖ q) at the sampled states;
    k3's is that of KL(q ‖ p), with the variance of q / p. K1 alone is rejected: its gradient is 0 in expectation.

    Args:
        beta: coefficient, ≥ 0.
        estimator: estimates a token's divergence.
        scale: weight that multiplies a token's divergence; off policy only the ratio keeps the gradient unbiased.
    """

    reads = {"teacher_logprob"}
    estimator: Estimator = StraightThrough(K1(), K2())

    def __post_init__(self) -> None:
        super().__post_init__()
        differentiated = self.estimator.gradient if isinstance(self.estimator, StraightThrough) else self.estimator
        if isinstance(differentiated, K1):
            raise TokenPOError(
                f"TeacherKl: on policy the gradient of {self.estimator!r} is 0 in expectation, and free of the "
                "teacher: take StraightThrough(K1(), K2())"
            )

    @property
    def assumes_on_policy(self) -> bool:
        return self.scale is None


class TeacherDivergence(Penalty):
    """coef · D(p, q): a divergence between whole next-token distributions, p of the policy and q of the teacher.

    beta = 0 is KL(q ‖ p), which makes the policy cover all that the teacher does; beta = 1 is KL(p ‖ q), which keeps it
    where the teacher is likely; between them is GKD's Jensen-Shannon divergence. Its gradient vanishes toward both
    ends, so the scale jumps at exactly 0 and 1: tune coef or the learning rate for each beta.

    Args:
        coef: ≥ 0.
        beta: in [0, 1]; engines compute the divergence for this beta (`Objective.teacher_beta`).
    """

    reads = {"teacher_divergence"}
    coef: NotNegative = 1.0
    beta: Share = 0.5

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.coef * batch.need("teacher_divergence")

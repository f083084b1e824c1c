"""Learns from a teacher's log-probabilities."""

import math
from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.ops.ratio import log_ratio
from ..core.parts.credit import GroupAdvantage
from ..core.parts.loss import Estimator, SequenceMean, TokenMean
from ..core.parts.part import CreditStage, Signal
from ..core.parts.surrogate import Clip, FixedBounds, LogLikelihood, TokenRatio, Unclipped
from ..core.parts.teacher import NoCredit, TeacherCredit, TeacherDivergence, TeacherKl
from ..core.parts.weights import BatchWeight
from ..core.ranges import AboveZero, Finite, NotNegative, Positive, Share
from ..core.types import Batch, Rollouts
from .options import High, Low
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
    bound: Annotated[AboveZero, "nats that bound the teacher's credit; inf: without bound"] = math.inf,
    rewards: Annotated[bool, "add the reward less its group's mean"] = False,
) -> Objective:
    """Rewards every token of the student's own responses with a teacher's log-ratio.

        x_it = log q(y_it) − lp_old,it,   q the teacher, in its own context      (`teacher_logprob`)
        A_it = [ R_i − mean_g R + ] coef · clip(Σ_{k≥t} gamma^(k−t) x_ik, −bound, bound)
        J = 1/Σ|o_i| Σ_i Σ_t r_it A_it

    Expected gradient, on policy: with gamma = 0 that of KL(π ‖ q) at the sampled states; with gamma = 1 that of whole
    responses' divergence, which costs reward for every further token and so favours short responses.
    Defaults: coef 1, gamma 0, no clip of the ratio (code); no bound.
    Departures: the code sums over tokens; J is a token mean. x compares the teacher with the old policy; the code
    compares it with the policy that sampled, as the correction "bypass" does here. The bound is ours.
    Notes: the teacher needs the student's tokenizer and temperature. `tokenpo.with_teacher` adds the same credit to any
    method.
    Reductions: without rewards and with gamma = 0 each token stands alone. With a teacher that is the old policy only
    the rewards are left.
    """
    inner = GroupAdvantage(std=False) if rewards else None
    return Objective(TeacherCredit(inner, coef, gamma, bound), Unclipped(), TokenMean())


Early = Annotated[NotNegative, "how much more the first token weighs than the last"]


class EarlyTeacher(CreditStage):
    """(1 + gamma (1 − Σ_{k<t} |x_ik| / Σ_k |x_ik|)) · x_it, x the teacher's log-ratio to the old policy."""

    reads = {"teacher_logprob"}
    gamma: Early

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        x = log_ratio(rollouts.need("teacher_logprob").double(), rollouts.old_logprob)
        size = masked.keep(x.abs(), rollouts.mask)
        before = (size.cumsum(1) - size) / size.sum(1, keepdim=True).clamp(min=1e-8)
        return (1 + self.gamma * (1 - before)) * x


@Paper(
    "On the Position Bias of On-Policy Distillation",
    "2606.22600",
    "code",
    "a framework was read, not the paper",
    code="trl 1.16.0:trl/experimental/iw_opd/iw_opd_trainer.py",
)
def iw_opd(*, gamma: Early = 0.5) -> Objective:
    """Rewards the student's tokens with a teacher's log-ratio, early ones more.

        x_it = log q(y_it) − lp_old,it      (`teacher_logprob`)
        w_it = 1 + gamma (1 − Σ_{k<t} |x_ik| / Σ_k |x_ik|)
        J = 1/Σ|o_i| Σ_i Σ_t sg[w_it x_it] lp_it

    After a long disagreement the teacher judges a text that it would not have begun, so its word counts less.
    Expected gradient, on policy: it descends no divergence, as w depends on later tokens; 0 where π = q.
    Defaults: gamma 0.5 (code).
    Departures: x compares with the old policy; with the correction "bypass" it is the sampler, as in the code.
    Reductions: gamma = 0 has the gradient of `opd` at lp = lp_old.
    """
    return Objective(EarlyTeacher(gamma), LogLikelihood(), TokenMean())


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
    """Moves every next-token distribution toward the teacher's.

        D_it = beta KL(q ‖ m) + (1 − beta) KL(p ‖ m),   m = beta q + (1 − beta) p      (eq. 1)
        D_it = KL(q ‖ p) at beta = 0,   KL(p ‖ q) at beta = 1
        J = 1/Σ|o_i| Σ_i Σ_t [ −coef · D_it + r_it (R_i − mean_g R), the last with rewards=True ]

    p is the current policy and q the teacher at token t, over the vocabulary. The gradient is D's at the sampled
    states. It has no noise from the sampled token and needs no ratio.
    Defaults: beta 0.5 and coef 1 as in the code; no rewards.
    Departures: the code mixes in responses of a data set (its `lmbda`); here all are the student's. It computes the
    loss at temperature 1; here at the temperature of sampling. How the paper weighs rewards was not read.
    Notes: choose the learning rate with beta: the divergence vanishes toward both ends of beta, and jumps at exactly 0
    and 1. The teacher has the student's vocabulary and temperature, and as many logits as the policy's own pass.
    Reductions: where the teacher is the policy, D and its gradient are 0, and rewards alone are left. With beta = 1 the
    gradient on policy equals `opd`'s with gamma = 0, in expectation over the sampled token.
    """
    credit = GroupAdvantage(std=False) if rewards else NoCredit()
    return Objective(credit, Unclipped(), TokenMean(), penalties=(TeacherDivergence(coef, beta),))


SWIFT = "modelscope/ms-swift@070fedc:swift/rl_core/advantage.py"
Mixed = Annotated[Share, "share of the weight that the teacher decides"]
TeacherReach = Annotated[Share, "how far its weight may leave 1"]


class TeacherWeight(BatchWeight):
    """1 − lam + lam · clip(exp(sign(A) · x), 1 ± eps), x the teacher's log-ratio to the old policy."""

    reads = {"teacher_logprob"}
    lam: Mixed
    eps: TeacherReach

    def of_batch(self, batch: Batch) -> Tensor:
        x = log_ratio(batch.need("teacher_logprob"), batch.rollouts.old_logprob)
        preferred = (batch.credit.advantage.sign() * x).exp().clamp(1 - self.eps, 1 + self.eps)
        return 1 - self.lam + self.lam * preferred


@Paper(
    "Self-Distilled RLVR (RLSD)",
    "2604.03128",
    "code",
    "a framework was read, not the paper or the authors' code",
    code=SWIFT,
)
def rlsd(*, low: Low = 0.2, high: High = 0.2, lam: Mixed = 0.5, eps: TeacherReach = 0.2) -> Objective:
    """GRPO whose advantage is weighted token by token by an informed teacher.

        w_it = clip(exp(sign(A_i) x_it), 1 − eps, 1 + eps),   x_it = log q(y_it) − lp_old,it      (`teacher_logprob`)
        J = 1/N Σ_i 1/|o_i| Σ_t (1 − lam + lam w_it) min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    A_i is GRPO's, and keeps its sign. q is meant to be the policy itself with the answer in its context; the engine's
    teacher is used as q.
    Expected gradient: neither the reward's nor a divergence's, as the weight depends on the action.
    Defaults: lam 0.5, eps 0.2 and the loss of GRPO (code).
    Departures: lam is constant (in the code it may grow and fade), and wrong responses are not weighed alone. The code
    adds 1e-4 to the deviation.
    Reductions: lam = 0 or eps = 0 is GRPO, and so is a teacher that agrees with the old policy.
    """
    weights = (TeacherWeight(lam, eps),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=weights)


Gate = Annotated[NotNegative, "steepness of the gate, per nat"]


class Gated(Estimator):
    """sg[σ(gate · x)] · x."""

    stationary = False
    gate: Gate

    def __call__(self, x: Tensor) -> Tensor:
        return (self.gate * x.detach()).sigmoid() * x


@Paper("Self-Distilled Agentic RL (SDAR)", "2605.15155", "code", "a framework was read, not the paper", code=SWIFT)
def sdar(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    coef: Annotated[NotNegative, "coefficient of the pull toward the teacher; 0 needs no teacher"] = 0.1,
    gate: Gate = 5.0,
) -> Objective:
    """GRPO with a token mean plus a gated pull toward the tokens that an informed teacher prefers.

        x_it = log q(y_it) − lp_it,   q the policy with more in its context      (`teacher_logprob`)
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − coef · sg[σ(gate x_it)] x_it ]

    A_i is GRPO's.
    Expected gradient of the pull, on policy: it raises a bounded reward for what the teacher prefers. A token is never
    pushed down, and at x = 0 the pull is half of the largest.
    Defaults: gate 5 and the token mean (code); coef 0.1 and the clip 0.2/0.2 (ours: the code's coef is 0, which is
    off).
    Departures: both terms have the same aggregation.
    Reductions: coef = 0 is GRPO under a token mean.
    """
    penalties = (TeacherKl(coef, Gated(gate)),) if coef else ()
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)


Cap = Annotated[Positive, "largest ratio that weighs a token"]
Example = Annotated[Finite, "reward from which a response is an example to the others"]


class HasExample(Signal):
    """1 where another response of the group earned at least the threshold, else 0."""

    threshold: Example

    def __call__(self, rollouts: Rollouts) -> Tensor:
        alive = rollouts.mask.any(1)
        right = (alive & (rollouts.reward >= self.threshold)).double()
        others = Groups.of(rollouts.group, alive).sum(right) - right
        return (others > 0).to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)


class Informed(BatchWeight):
    """min(r, cap), and 0 for a response without an example."""

    cap: Cap
    example: HasExample

    def of_batch(self, batch: Batch) -> Tensor:
        return TokenRatio()(batch).detach().clamp(max=self.cap) * batch.signal(self.example)


@Paper(
    "Reinforcement Learning via Self-Distillation (SDPO)",
    "2601.20802",
    "code",
    "a framework was read, not the paper or the authors' code",
    code="trl 1.16.0:trl/experimental/sdpo/sdpo_trainer.py",
)
def sdpo(*, cap: Cap = 2.0, threshold: Example = 1.0) -> Objective:
    """The policy itself, given a right answer of the group as context, is the teacher.

        x_it = log q(y_it) − lp_it,   q the informed policy      (`teacher_logprob`)
        J = 1/N Σ_i e_i 1/|o_i| Σ_t sg[min(r_it, cap) x_it] lp_it
        e_i = 1[another response of the group has R ≥ threshold]

    This is the sampled-token form. The reported value is min(r, cap) x; the gradient is J's.
    Expected gradient, on policy: that of KL(π ‖ q) at the sampled states, over the length of the response. Rewards only
    decide which responses have an informed teacher.
    Defaults: cap 2, threshold 1 and the mean of response means (code).
    Departures: feedback of an environment and a mixture with a policy loss are left out (`tokenpo.with_teacher` mixes).
    A response without an example adds nothing here, whatever its teacher's log-probabilities are.
    Reductions: where the teacher is the current policy, nothing moves.
    """
    penalties = (TeacherKl(1.0, scale=Informed(cap, HasExample(threshold))),)
    return Objective(NoCredit(), Unclipped(), SequenceMean(), penalties=penalties)

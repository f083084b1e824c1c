"""Credit that differs inside a response, or is made of several rewards."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.ops.masked import whiten
from ..core.ops.ratio import log_ratio
from ..core.ops.turns import Turns
from ..core.parts.aggregate import TokenMean
from ..core.parts.continuations import Continuations, Improbable, WhitenedGain, improbable
from ..core.parts.correction import RolloutCorrection
from ..core.parts.credit import GroupAdvantage, RewardToGo
from ..core.parts.part import CreditStage, Signal
from ..core.parts.penalties import ReferenceKl
from ..core.parts.surrogate import Clip, FixedBounds
from ..core.parts.weights import SignalWeight
from ..core.ranges import FINITE, Count, Fraction, NotNegative, Range, Share, at_least
from ..core.types import Rollouts
from .options import Beta, High, Low
from .paper import TRL, VERL, Paper

Omega = Annotated[NotNegative, "weight of the comparison of turns"]
ByTurn = Annotated[bool, "in the group's mean a trajectory counts once for each of its turns"]


@dataclass(frozen=True)
class GroupInGroup(CreditStage):
    """The trajectory's advantage in its group, and `omega` times the step's among those from the same state."""

    step: RewardToGo
    omega: Omega = 1.0
    by_turn: ByTurn = True

    reads = {"turn"}

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        turns = Turns.of(rollouts.need("turn"), rollouts.mask)
        mean, std = groups.mean_std(reward, weight=turns.count if self.by_turn else None)
        centred = reward.double() - mean
        episode = torch.where(groups.varied(reward), centred / (std + self.step.eps) if self.step.std else centred, 0.0)
        return episode[:, None] + self.omega * self.step(rollouts, bonus)


@Paper(
    "Group-in-Group Policy Optimization for LLM Agent Training", "2505.10978", "code",
    "the authors' own trainer was read in copies only",
    code="johnhaofu/verl-agent@c23d586:gigpo/core_gigpo.py; langfengQ/DrMAS@3b556f2:gigpo/core_gigpo.py; "
    "cq-dong/verl-agent@595dfc6:examples/gigpo_trainer/run_alfworld.sh",
)  # fmt: skip
def gigpo(
    *,
    omega: Omega = 1.0,
    gamma: Annotated[Share, "discount from one turn to the next"] = 1.0,
    std: Annotated[bool, "divide by the deviations of rewards and of returns from the same state"] = False,
    eps: Annotated[NotNegative, "added to the deviations"] = 1e-6,
    by_turn: ByTurn = True,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """A turn is compared with the turns that began in the same state, the trajectory with its group.

        G_ik  = s_ik + gamma G_i,k+1,   s_ik the reward that arrives in turn k
        A^E_i = R_i − mean_g R,         in which a trajectory counts once for each of its turns
        A^S_ik = G_ik − mean G,         over the turns of the group that began in the same state
        A_it  = A^E_i + omega A^S_ik,   k the turn of token t
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

    Defaults: omega 1, no deviations and eps 1e-6 as in the code that was read, whose training script divides by the
    deviations (std) and has gamma 0.95; gamma 1 and the clip 0.2 are ours. A trajectory counts once for each turn
    (by_turn) in the copies of the authors' trainer, and once in a later trainer of theirs, DrMAS.
    Departures: the authors train on steps as rows; here a trajectory is a row and a step is a turn of it, with equal
    advantages. A group of one trajectory learns nothing from A^E; their code keeps its raw reward. States are the same
    where their `anchor` is.
    Reductions: omega = 0 with one turn for each response is Dr. GRPO's advantage.
    """
    credit = GroupInGroup(RewardToGo(gamma, anchored=True, std=std, eps=eps), omega, by_turn)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean())


OfTurn = Annotated[NotNegative, "weight of the first turn's own advantage"]
Outcomes = Annotated[Count, "number of last reward functions that judge the outcome; the others judge the first turn"]


@dataclass(frozen=True)
class FirstTurn(CreditStage):
    """The advantage of the outcome, and in the first of several turns also that of the turn."""

    reads = {"rewards", "turn"}
    coef: OfTurn
    outcome_rewards: Outcomes
    group: GroupAdvantage
    joint: bool = False

    @property
    def columns(self) -> int:
        return self.outcome_rewards

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        each, alive = rollouts.need("rewards").nan_to_num(0.0).double(), rollouts.mask.any(1)
        if each.shape[1] < self.columns:
            raise TokenPOError(
                f"mt_grpo: the last {self.outcome_rewards} rewards judge the outcome, and Rollouts.rewards has "
                f"{each.shape[1]} columns: give so many, and before them those of the turn"
            )
        of_turn = each[:, : -self.outcome_rewards].sum(1)
        of_outcome = each[:, -self.outcome_rewards :].sum(1) + bonus
        groups, turns = Groups.of(rollouts.group, alive), Turns.of(rollouts.need("turn"), rollouts.mask)
        if self.joint:
            whole = of_outcome + self.coef * of_turn
            (mean, std), later = groups.mean_std(whole), of_outcome - groups.mean_std(of_outcome)[0]
            pair = torch.where(turns.index == 0, (whole - mean)[:, None], later[:, None])
            return torch.where(groups.varied(whole)[:, None], pair / (std + self.group.eps)[:, None], 0.0)
        turn, outcome, both = (self.group.of(groups, x)[:, None] for x in (of_turn, of_outcome, of_turn + of_outcome))
        called = (turns.count > 1)[:, None]
        return torch.where(called, outcome + self.coef * turn * (turns.index == 0), both)


@Paper(
    "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Credit Assignment", "2505.11821", "code",
    code="SiliangZeng/Multi-Turn-RL-Agent@7860de6:verifiers/trainers/mt_grpo_env_trainer.py; "
    "SiliangZeng/Multi-Turn-RL-Agent@3f06c26:verifiers/examples/triviaqa_search.py",
)  # fmt: skip
def mt_grpo(
    *,
    coef: OfTurn = 1.0,
    outcome_rewards: Outcomes = 1,
    norm: Annotated[
        Literal["each", "joint"], "each sum over its own deviation, or all over that of the whole"
    ] = "each",
    low: Low = 0.2,
    high: High = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """What a tool call earned counts for the tokens that made it, the outcome for all.

        norm(x)_i = (x_i − mean_g x) / (std_g x + 1e-4)
        A_it = norm(R^out)_i + coef · norm(R^turn)_i   in the first turn, before the tool's result
               norm(R^out)_i                           after it
               norm(R^turn + R^out)_i                  where no result came
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_it, clip(r_it, 1−low, 1+high) A_it) − beta · k3(π_ref/π) ]

    With norm="joint" the scale is one: d = std_g(R^out + coef R^turn) + 1e-4, and
        A_it = (R^out + coef R^turn − mean_g)_i / d   in the first turn
               (R^out − mean_g)_i / d                 after it

    R^out sums what the last `outcome_rewards` reward functions gave, R^turn what those before them did.
    Defaults: coef 1, clip 0.2 and the token mean as in the authors' code; one reward function for the outcome (four in
    their example); beta = 0, as everywhere here for verifiable rewards (0.01 in their example).
    Note: the authors' form has three scales, and which of them a response gets depends on whether it called a tool, an
    action: the expected update is not the gradient of any reward. A call that earns little at once and loses more in
    the end is learnt (docs/exact.md, "Turns"); norm="joint" follows the gradient of R^out + coef R^turn, up to its
    scale.
    Departures: the authors take the mean over the tokens of a micro-batch, and weigh each reward function. They find
    the result in the text of the messages; here a result came where the response has a second turn: one that ends with
    its tool call counts as one without. Turns after the first share one advantage. The code's second form, in which the
    first turn gets norm(R^turn + gamma R^out) alone, is left out.
    Reductions: with one turn for each response it is GRPO of the sum of all rewards, with eps 1e-4 and the token mean.
    """
    credit = FirstTurn(coef, outcome_rewards, GroupAdvantage(eps=1e-4), norm == "joint")
    penalties = (ReferenceKl(beta),) if beta else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)


EPS = 1e-8

ZeroTail = Annotated[bool, "no baseline where a single rollout of the group is left"]
ByToken = Annotated[bool, "rewards arrive at tokens, read from `Rollouts.token_reward`; else all of it at the end"]
Cap = Annotated[float, at_least(1)]


@dataclass(frozen=True)
class OptimalBaseline(CreditStage):
    """The reward still to come less the group's mean of it at the same token, weighted by the norm of the gradient.

    `cap` bounds the weight of the sampling engine in the norm; None leaves it out.
    """

    zero_tail: ZeroTail = True
    steps: ByToken = False
    cap: Cap | None = None

    @property
    def reads(self) -> set[str]:
        steps, sampler = {"token_reward"} if self.steps else set(), {"rollout_logprob"} if self.cap else set()
        return {"old_collision"} | steps | sampler

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        mask, groups = rollouts.mask, Groups.of(rollouts.group, rollouts.mask.any(1))
        order = (~mask).int().argsort(dim=1, stable=True)  # response tokens first
        here = mask.gather(1, order)
        to_come = self._to_come(rollouts, bonus).gather(1, order)
        norm = masked.keep(self._norm(rollouts), mask).gather(1, order).cumsum(1) * here
        least = to_come.new_full((groups.count, mask.shape[1]), torch.inf)
        index = groups.index[:, None].expand_as(to_come)
        least.scatter_reduce_(0, index, torch.where(here, to_come, torch.inf), "amin")
        over = torch.where(here, to_come - least[groups.index], 0.0)
        advantage = over - groups.sum(norm * over) / (groups.sum(norm) + EPS)
        alone = groups.sum(here.long()) == 1
        bare = alone if self.zero_tail else alone & (groups.size() == 1)[:, None]
        return torch.zeros_like(advantage).scatter(1, order, torch.where(bare, to_come, advantage))

    def _to_come(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """[N, T] G, float64."""
        if not self.steps:
            return (rollouts.reward + bonus).double()[:, None].expand(rollouts.mask.shape)
        return rollouts.need("token_reward").double().flip(1).cumsum(1).flip(1) + bonus[:, None]

    def _norm(self, rollouts: Rollouts) -> Tensor:
        """[N, T] w, float64; rounding makes no norm negative."""
        norm = (1 - 2 * rollouts.old_logprob.double().exp() + rollouts.need("old_collision").double()).clamp(min=0.0)
        if self.cap is None:
            return norm
        log = log_ratio(rollouts.old_logprob, rollouts.need("rollout_logprob")).double()
        return norm * log.exp().clamp(max=self.cap).square()


@Paper(
    "The Optimal Token Baseline: Variance Reduction for Long-Horizon LLM-RL", "2602.07078", "code",
    "the theorem's own text was not read", code=VERL,
)  # fmt: skip
def otb(
    *,
    zero_tail: ZeroTail = True,
    token_reward: ByToken = False,
    rollout_cap: Annotated[Cap | None, "largest weight that corrects for the sampling engine; None: no weight"] = None,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """The baseline of a token weighs the rollouts by how far each has moved the gradient up to it.

        w_it = 1 − 2 π_it + Σ_v π_v²,   at the old policy: the squared norm of the gradient in the logits
        W_it = Σ_{j ≤ t} w_ij,          with a correction for the sampling engine w_ij ρ_ij², ρ = min(π_old/π_roll, cap)
        B_gt = Σ_i W_it G_it / (Σ_i W_it + 1e-8),   over the rollouts of the group that reach token t
        A_it = G_it − B_gt
        J = 1/Σ|o_i| Σ_i Σ_t [ρ_it] min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

    G_it is the reward still to come: R_i where it all arrives at the end, the sum of `token_reward` from t on
    otherwise.
    Defaults: zero_tail as in the code that was read: where a single rollout is left, B = 0. The clip, 0.2 on both
    sides, and the token mean are the framework's.
    Departures: token t is the t-th response token, tool tokens left out, as in the framework's form for several turns.
    What all rollouts of a group earn is taken out of G before B and put back, so that equal rewards have an advantage
    of exactly 0, and a token whose W is all 0 has that for its baseline. A group of one keeps its reward as its
    advantage, as there.
    Reductions: rewards at the end, one token for each response and W all equal: Dr. GRPO's advantage.
    """
    credit = OptimalBaseline(zero_tail, token_reward, rollout_cap)
    weights = () if rollout_cap is None else (RolloutCorrection(cap=rollout_cap),)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)


@dataclass(frozen=True)
class OverImprobable(Signal):
    """1[p_old < below] over its mean on the tokens of the rollout batch: a mean over all becomes one over these."""

    below: Fraction

    def __call__(self, rollouts: Rollouts) -> Tensor:
        kept = improbable(rollouts, self.below)
        return (kept.double() * rollouts.mask.sum() / kept.double().sum().clamp(min=1)).to(rollouts.old_logprob.dtype)


@Paper(
    "Segment Policy Optimization: Improved Credit Assignment in Reinforcement Learning for LLMs", "2505.23564", "code",
    code="AIFrameResearch/SPO@b9fc6a2:src/treetune/episode_generators/math_episode_generator_with_mc_advantages.py; "
    "AIFrameResearch/SPO@b9fc6a2:src/treetune/trainers/ppo_trainer.py",
)  # fmt: skip
def spo(
    *,
    interval: Annotated[Count, "improbable tokens of a segment"] = 5,
    below: Annotated[Fraction, "tokens whose old probability is below this are improbable"] = 0.9,
    continuations: Annotated[Count, "drawn from each cut"] = 9,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Segments between improbable tokens are worth what they add, and only improbable tokens learn.

        cuts: before the 1st, (1 + interval)-th, (1 + 2 interval)-th ... of the tokens with p_old < below
        V(s)  = mean R of `continuations` continuations from s, at every cut
        A_it  = V(behind the segment of t) − V(before it);   behind the last R_i, before the first cut 0     (`gain`)
        Â_it  = (A_it − mean A) / √(var A + 1e-8) over the tokens with p_old < below, 0 on the others
        J = mean over the tokens with p_old < below of min(r_it Â_it, clip(r_it, 1−low, 1+high) Â_it)

    Defaults: interval 5, below 0.9, 9 continuations, clip 0.2/0.2 (code).
    Departures: the mean of J is over the rollout batch, theirs over a minibatch. log r_it is bounded to ±20, theirs to
    ±10, and a minibatch whose mean ratio exceeds 10 is skipped there. The scripts add a divergence of 0.0001 from the
    reference, which `train.reference_kl` adds here. The paper's tree, in which continuations are trained on too, is not
    implemented.
    Note: the continuations are sampled tokens: `continued_tokens` of a run counts them.
    """
    credit = WhitenedGain(Continuations(Improbable(interval, below), continuations), below)
    weights = (SignalWeight(OverImprobable(below)),)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)


Weights = Annotated[
    tuple[float, ...],
    Range("a list of finite numbers", lambda x: isinstance(x, tuple | list) and all(FINITE.holds(w) for w in x)),
]


@dataclass(frozen=True)
class Decoupled(CreditStage):
    """Every reward normalised in its group; their weighted sum normalised over the batch.

    `tokens` takes the batch's tokens, not its responses; `leave_one_out` compares with the others of the group. Without
    `weights` each reward counts 1.
    """

    across_groups = True
    reads = {"rewards"}
    eps: NotNegative
    batch_eps: NotNegative
    tokens: bool = False
    leave_one_out: bool = False
    weights: Weights = ()

    @property
    def columns(self) -> int:
        return len(self.weights) or 1

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        rewards, mask = rollouts.need("rewards").double(), rollouts.mask
        if len(self.weights or rewards[0]) != rewards.shape[1]:
            raise TokenPOError(
                f"gdpo: {len(self.weights)} weights for the {rewards.shape[1]} columns of Rollouts.rewards: give one "
                "for each, in their order"
            )
        weights = (*(self.weights or (1.0,) * rewards.shape[1]), 1.0)
        scored = mask.any(1) & ~rewards.isnan().all(1)
        columns = torch.cat([rewards, bonus.double()[:, None]], 1).T
        total = torch.zeros_like(columns[0])
        for weight, column in zip(weights, columns, strict=True):
            given = scored & ~column.isnan()
            alike = Groups.of(rollouts.group, given)
            total += weight * self._of_group(alike, column.nan_to_num(0.0)).where(given, 0.0)
        if self.tokens:
            return whiten(total[:, None].expand(mask.shape), mask & scored[:, None])
        return _standard(total, scored, self.batch_eps)[:, None].expand(mask.shape)

    def _of_group(self, groups: Groups, x: Tensor) -> Tensor:
        """[N] one reward, normalised."""
        if not self.leave_one_out:
            return GroupAdvantage(eps=self.eps).of(groups, x)
        others = (groups.size() - 1).clamp(min=1)
        centre = groups.mean_std(x)[0]
        y = x - centre  # from near 0 a difference of squares loses nothing
        mean = (groups.sum(y) - y) / others
        variance = ((groups.sum(y.square()) - y.square()) / others - mean.square()).clamp(min=0.0)
        std = (variance * others / (others - 1).clamp(min=1)).sqrt()  # ddof 1; 0 of a single other
        low, high = groups.extremes(y)
        alike = std <= 1e-7 * (high - low)  # what rounding leaves where the others are equal
        return torch.where(groups.varied(x), (y - mean) / torch.where(alike, 1.0, std + self.eps), 0.0)


def _standard(x: Tensor, valid: Tensor, eps: float) -> Tensor:
    """(x − mean) / (std + eps) of x [N] over the valid rows, ddof 1; 0 at others, and where all are equal."""
    values = x[valid]
    centred = values - values.min()  # equal values have a mean and a deviation of exactly 0
    centred = centred - centred.mean()
    std = (centred.square().sum() / max(1, values.numel() - 1)).sqrt()
    out = torch.zeros_like(x)
    out[valid] = centred / (std + eps) if std > 0 else centred
    return out


FORMS = {
    "trl": Decoupled(eps=1e-4, batch_eps=1e-4),
    "verl": Decoupled(eps=1e-6, batch_eps=0.0, tokens=True),
    "nemo_rl": Decoupled(eps=1e-6, batch_eps=0.0, leave_one_out=True),
}


@Paper(
    "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization", "2601.05242",
    "code", code=f"{TRL}; {VERL}; NVIDIA-NeMo/RL@7ea279a:nemo_rl/algorithms/advantage_estimator.py",
)  # fmt: skip
def gdpo(
    *,
    form: Annotated[Literal["trl", "verl", "nemo_rl"], "the framework whose formula it is"] = "trl",
    weights: Annotated[Weights, "one for each reward function, in their order; none is 1 for all"] = (),
    low: Low = 0.2,
    high: High = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """Several rewards, none of which drowns another: each is normalised before they are added.

        a_ik = (R_ik − mean_g R_k) / (std_g R_k + eps),   u_i = Σ_k w_k a_ik
        A_i  = (u_i − mean u) / (std u + eps'),           mean and deviation over the rollout batch
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

    Three frameworks have three forms, and each gives other numbers:

        trl      eps = eps' = 1e-4; over responses; a reward that does not apply is passed over
        verl     eps = 1e-6; over tokens, so that long responses count more, √(var u + 1e-8) in place of std u + eps'
        nemo_rl  mean and deviation of the other responses of the group, without division where these are equal or one
                 alone; eps = 1e-6; over responses, eps' = 0

    Defaults: TRL's form, which is one of the authors'; equal weights; clip 0.2 on both sides and the token mean, ours;
    beta = 0, as everywhere here for verifiable rewards.
    Departures: a group of one learns nothing from its rewards; verl takes them as they are. Equal rewards give exactly
    0, in TRL and verl rounding. A shaping bonus is one more reward, of weight 1. Every form skips a missing (NaN)
    reward.
    Reductions: none to GRPO: a group of equal rewards has an advantage where the batch's mean is not 0, so that no rows
    may be skipped.
    """
    credit = dataclasses.replace(FORMS[form], weights=tuple(weights))
    penalties = (ReferenceKl(beta),) if beta else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)

"""GDPO: each of several rewards is normalised in its group, then their sum in the batch.

    a_ik = (R_ik − mean_g R_k) / (std_g R_k + eps),   u_i = Σ_k w_k a_ik
    A_i  = (u_i − mean u) / (std u + eps'),           mean and deviation over the rollout batch
    J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

Three frameworks have three forms, and each gives other numbers:

    trl      eps = eps' = 1e-4; over responses; a reward that does not apply is passed over
    verl     eps = 1e-6; over tokens, so that long responses count more, and √(var u + 1e-8) in place of std u + eps'
    nemo_rl  mean and deviation of the other responses of the group, without division where these are equal or one
             alone; eps = 1e-6; over responses, eps' = 0

Defaults: TRL's form, which is one of the authors'; equal weights; clip 0.2 on both sides and the token mean, ours;
beta = 0, as everywhere here for verifiable rewards.
Departures: a group of one learns nothing from its rewards; verl takes them as they are. Equal rewards give exactly 0;
in TRL and verl they give rounding errors. A shaping bonus is one more reward, of weight 1. Every form skips a missing
(NaN) reward.
Reductions: none to GRPO: a group of equal rewards has an advantage where the batch's mean is not 0, so no rows may be
skipped.
"""

import dataclasses
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.ops.masked import deviations, whiten
from ..core.parts import Clip, CreditStage, FixedBounds, GroupAdvantage, ReferenceKl, TokenMean
from ..core.ranges import FINITE, NotNegative, Range
from ..core.types import Rollouts
from .options import Beta, High, Low
from .paper import TRL, VERL, Paper

Weights = Annotated[
    tuple[float, ...],
    Range("a list of finite numbers", lambda x: isinstance(x, tuple | list) and all(FINITE.holds(w) for w in x)),
]


class Decoupled(CreditStage):
    """Every reward normalised in its group; their weighted sum normalised over the batch.

    `tokens` normalises over the batch's tokens instead of its responses; `leave_one_out` compares a response with the
    others of its group. Without `weights` each reward counts 1.
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
        return len(self.weights)

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
        y = x - centre  # centred, so that the difference of squares below loses no precision
        mean = (groups.sum(y) - y) / others
        variance = ((groups.sum(y.square()) - y.square()) / others - mean.square()).clamp(min=0.0)
        std = (variance * others / (others - 1).clamp(min=1)).sqrt()  # ddof 1; 0 if there is only one other
        low, high = groups.extremes(y)
        alike = std <= 1e-7 * (high - low)  # 0 up to rounding, where the others are equal
        return torch.where(groups.varied(x), (y - mean) / torch.where(alike, 1.0, std + self.eps), 0.0)


def _standard(x: Tensor, valid: Tensor, eps: float) -> Tensor:
    """(x − mean) / (std + eps) of x [N] over the valid rows, ddof 1; 0 at other rows, and where all are equal."""
    out = torch.zeros_like(x)
    if valid.any():
        centred, variance = deviations(x[valid])
        out[valid] = centred / (variance.sqrt() + eps) if variance > 0 else centred
    return out


FORMS = {
    "trl": Decoupled(eps=1e-4, batch_eps=1e-4),
    "verl": Decoupled(eps=1e-6, batch_eps=0.0, tokens=True),
    "nemo_rl": Decoupled(eps=1e-6, batch_eps=0.0, leave_one_out=True),
}


@Paper(
    "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization",
    "2601.05242",
    "code",
    code=f"{TRL}; {VERL}; NVIDIA-NeMo/RL@7ea279a:nemo_rl/algorithms/advantage_estimator.py",
)
def gdpo(
    *,
    form: Annotated[Literal["trl", "verl", "nemo_rl"], "the framework whose formula is used"] = "trl",
    weights: Annotated[Weights, "one for each reward function, in their order; () weighs each by 1"] = (),
    low: Low = 0.2,
    high: High = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """Normalises each of several rewards before adding them, so that none drowns another."""
    credit = dataclasses.replace(FORMS[form], weights=tuple(weights))
    penalties = (ReferenceKl(beta),) if beta else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)

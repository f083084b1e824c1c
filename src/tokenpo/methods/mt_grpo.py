"""MT-GRPO: the turn that calls a tool has an advantage of its own.

    norm(x)_i = (x_i − mean_g x) / (std_g x + 1e-4)
    A_it = norm(R^out)_i + coef · norm(R^turn)_i   in the first turn, before the tool's result
           norm(R^out)_i                           after it
           norm(R^turn + R^out)_i                  where no result came
    J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_it, clip(r_it, 1−low, 1+high) A_it) − beta · k3(π_ref/π) ]

With norm="joint" there is one scale: d = max(std_g(R^out + coef R^turn), std_g R^out) + 1e-4, and
    A_it = (R^out + coef R^turn − mean_g)_i / d   in the first turn
           (R^out − mean_g)_i / d                 after it

R^out is the sum of the last `outcome_rewards` reward functions, R^turn the sum of those before them.
Defaults: coef 1, clip 0.2 and the token mean as in the authors' code; one reward function for the outcome (four in
their example); beta = 0, as everywhere here for verifiable rewards (0.01 in their example).
Note: the authors' form has three scales, and the scale of a response depends on whether it called a tool, which is an
action: the expected update is not the gradient of any reward. A call that earns little at once and loses more in the
end is learnt (docs/exact.md, "Turns"); norm="joint" follows the gradient of R^out + coef R^turn, up to its scale. It
is ours. Its scale is the larger deviation, because the totals can be equal where the outcomes differ.
Departures: the authors take the mean over the tokens of a micro-batch, and weigh each reward function. They find the
result in the text of the messages; here a result came where the response has a second turn: one that ends with its tool
call counts as one without. Turns after the first share one advantage. The code's second form, in which the first turn
gets norm(R^turn + gamma R^out) alone, is left out.
Reductions: with one turn for each response it is GRPO of the sum of all rewards, with eps 1e-4 and the token mean;
norm="joint" only up to the scale.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.ops.turns import Turns
from ..core.parts import Clip, CreditStage, FixedBounds, GroupAdvantage, ReferenceKl, TokenMean
from ..core.ranges import Count, NotNegative
from ..core.types import Rollouts
from .options import Beta, High, Low
from .paper import Paper

OfTurn = Annotated[NotNegative, "weight of the first turn's own advantage"]
Outcomes = Annotated[Count, "number of last reward functions that judge the outcome; the others judge the first turn"]


class FirstTurn(CreditStage):
    """The advantage of the outcome, and in the first of several turns also that of the turn."""

    reads = {"rewards", "turn"}
    coef: OfTurn
    outcome_rewards: Outcomes
    group: GroupAdvantage
    joint: bool = False

    @property
    def columns(self) -> int:
        return self.outcome_rewards + 1

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        each, alive = rollouts.need("rewards").nan_to_num(0.0).double(), rollouts.mask.any(1)
        if each.shape[1] < self.outcome_rewards:
            raise TokenPOError(
                f"mt_grpo: the last {self.outcome_rewards} rewards judge the outcome, and Rollouts.rewards has "
                f"{each.shape[1]} columns: give at least that many, and those of the turn before them"
            )
        of_turn = each[:, : -self.outcome_rewards].sum(1)
        of_outcome = each[:, -self.outcome_rewards :].sum(1) + bonus
        groups, turns = Groups.of(rollouts.group, alive), Turns.of(rollouts.need("turn"), rollouts.mask)
        if self.joint:
            whole = of_outcome + self.coef * of_turn
            sums = torch.where(turns.index == 0, whole[:, None], of_outcome[:, None])
            (mean, std), (later, other) = groups.mean_std(whole), groups.mean_std(of_outcome)
            apart = sums - torch.where(turns.index == 0, mean[:, None], later[:, None])
            varied = groups.varied(whole) | groups.varied(of_outcome)
            return torch.where(varied[:, None], apart / (torch.maximum(std, other) + self.group.eps)[:, None], 0.0)
        turn, outcome, both = (self.group.of(groups, x)[:, None] for x in (of_turn, of_outcome, of_turn + of_outcome))
        called = (turns.count > 1)[:, None]
        return torch.where(called, outcome + self.coef * turn * (turns.index == 0), both)


@Paper(
    "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Credit Assignment",
    "2505.11821",
    "code",
    code="SiliangZeng/Multi-Turn-RL-Agent@7860de6:verifiers/trainers/mt_grpo_env_trainer.py; "
    "SiliangZeng/Multi-Turn-RL-Agent@3f06c26:verifiers/examples/triviaqa_search.py",
)
def mt_grpo(
    *,
    coef: OfTurn = 1.0,
    outcome_rewards: Outcomes = 1,
    norm: Annotated[
        Literal["each", "joint"], "divide each sum by its own deviation, or all by the larger one of total and outcome"
    ] = "each",
    low: Low = 0.2,
    high: High = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """Gives the reward of a tool call to the turn that made the call, and the outcome's reward to all tokens."""
    credit = FirstTurn(coef, outcome_rewards, GroupAdvantage(eps=1e-4), norm == "joint")
    penalties = (ReferenceKl(beta),) if beta else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)

"""FIPO: a token counts more where the update has made the tokens after it likelier.

    d_it = log r_it, 0 where r_it > dual;   F_it = Σ_{k ≥ t} γ^(k−t) d_ik,   γ = 2^(−1/decay)
    f_it = clip(exp F_it, least, most);   where A_i < 0 and r_it > safety: clip(f_it, 0.8, 1)
    J = 1/Σ|o_i| Σ_i Σ_t sg[f_it] · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   dual clip where A_i < 0

With `least` below 1 a token counts less where the tokens after it have become less likely. k − t counts positions, tool
tokens included, where d is 0; the first `decay` positions have half of the total weight.
Defaults: decay 32, weights in [1, 1.2], safety 4, no dual clip, clip 0.2/0.2: ms-swift's general settings, as it sets
none of them for the method. Its example has dual 10, high 0.28, weights in [0.8, 1.2], safety 3.
Departures: the authors' code, read in a fork, has decay 128 and dual 3, and drops responses with more than one token
beyond the dual clip, also from the denominator. Log-ratios are bounded to ±20.
Reductions: least = most = 1 is DAPO with these bounds. At lp = lp_old all weights are 1.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.parts import BatchWeight, Clip, FixedBounds, GroupAdvantage, Ratio, TokenMean
from ..core.ranges import AboveOne, AboveZero, NotNegative, at_least
from ..core.types import Batch
from .options import High, Low
from .paper import Paper

# Bounds of the weight of a wrong token whose ratio is beyond the safety.
_SAFE = 0.8, 1.0

Decay = Annotated[AboveZero, "tokens after which a later token counts half"]
Least = Annotated[NotNegative, "smallest weight"]
Most = Annotated[NotNegative, "largest weight"]
Safety = Annotated[AboveZero, "ratio of a wrong token above which its weight is at most 1"]


class FutureWeight(BatchWeight):
    """exp of the discounted sum of the log-ratios from a token on, bounded; ratios above `dual` count in no sum."""

    idle_on_policy = True
    decay: Decay
    least: Least
    most: Most
    safety: Safety
    dual: AboveOne | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(most=at_least(self.least).because("the smallest weight"))

    def of_batch(self, batch: Batch) -> Tensor:
        x = Ratio.log(batch).detach()
        ratio = x.exp()
        moved = masked.keep(x if self.dual is None else torch.where(ratio > self.dual, 0.0, x), batch.mask)
        weight = discounted(moved, 2 ** (-1 / self.decay)).exp().clamp(self.least, self.most)
        risky = (batch.credit.advantage < 0) & (ratio > self.safety)
        return torch.where(risky, weight.clamp(*_SAFE), weight)


def discounted(x: Tensor, gamma: float) -> Tensor:
    """Σ_{k ≥ t} γ^(k−t) x_k of each row [N, T], in steps that double the window."""
    total, window = x, 1
    while window < x.shape[1]:
        ahead = torch.zeros_like(total)
        ahead[:, :-window] = total[:, window:]
        total, window = total + gamma**window * ahead, 2 * window
    return total


@Paper(
    "FIPO",
    "2603.19835",
    "code",
    "a framework's code, whose defaults these are; the paper was not read",
    code="modelscope/ms-swift@3602360:swift/rlhf_trainers/grpo_trainer.py",
)
def fipo(
    *,
    decay: Decay = 32.0,
    least: Least = 1.0,
    most: Most = 1.2,
    safety: Safety = 4.0,
    dual: Annotated[AboveOne | None, "dual clip; tokens beyond it count in no weight"] = None,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Weighs a token more where the update has made the tokens after it likelier."""
    weight = FutureWeight(decay, least, most, safety, dual)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), dual=dual), TokenMean(), weights=(weight,))

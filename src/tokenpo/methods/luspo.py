"""LUSPO: GSPO in which long responses count for what they are.

Paper: Length-Unbiased Sequence Policy Optimization (2602.05261); provenance: code.

    s_i = exp(mean_t log r_it)
    J = 1/N Σ_i |o_i| · min(s_i A_i, clip(s_i, 1−low, 1+high) A_i)

The length cancels the one inside s_i: where nothing is clipped every token of the step has the weight s_i A_i / N,
while GSPO gives the tokens of a long response less.
Defaults: clip 0.2/0.2 (a framework's, whose default it is for every loss). A length-normalised ratio hardly leaves 1:
low=3e-4, high=4e-4, GSPO's, is the alternative.
Departures: a response without tokens is not counted in N; the framework counts it. Its divergence is off.
Reductions: with responses of equal length L it is L times GSPO, value and gradient. A response of one token has GRPO's
clipped ratio. At lp = lp_old it moves along the sum of A lp over all tokens, as DAPO does.
"""

from __future__ import annotations

from ..core.objective import Objective
from ..core.parts import Clip, ConstantLength, FixedBounds, GeometricSequence, GroupAdvantage
from ..core.ranges import Limit, Share
from .paper import Paper, published

PAPER = Paper(
    "Length-Unbiased Sequence Policy Optimization: Revealing and Controlling Response Length Variation in RLVR",
    "2602.05261", "", "code", "the clip range; a framework's code was read, not the authors'",
    code="trl 1.16.0:trl/trainer/grpo_trainer.py",
)  # fmt: skip


@published(PAPER)
def luspo(*, low: Share = 0.2, high: Limit = 0.2) -> Objective:
    """One ratio for the response, as in GSPO, and a sum over its tokens in place of their mean.

    Args:
        low: clip below.
        high: clip above.
    """
    return Objective(
        name="luspo",
        credit=GroupAdvantage(),
        surrogate=Clip(FixedBounds(low, high), ratio=GeometricSequence()),
        aggregate=ConstantLength(1.0),
    )

"""LUSPO: GSPO in which long responses count for what they are.

    s_i = exp(mean_t log r_it)
    J = 1/N Σ_i |o_i| · min(s_i A_i, clip(s_i, 1−low, 1+high) A_i)

The length cancels the one inside s_i: an unclipped token has the weight s_i A_i / N, in a response of any length.
Defaults: clip 0.2/0.2 (a framework's, whose default it is for every loss). A length-normalised ratio hardly leaves 1:
low=3e-4, high=4e-4, GSPO's, is the alternative.
Departures: a response without tokens is not counted in N; the framework counts it. Its divergence is off.
Reductions: with responses of equal length L it is L times GSPO, value and gradient. A response of one token has GRPO's
clipped ratio. At lp = lp_old it moves along the sum of A lp over all tokens, as DAPO does.
"""

from ..core.objective import Objective
from ..core.parts import Clip, ConstantLength, FixedBounds, GeometricSequence, GroupAdvantage
from .options import High, Low
from .paper import TRL, Paper


@Paper(
    "Length-Unbiased Sequence Policy Optimization: Revealing and Controlling Response Length Variation in RLVR",
    "2602.05261", "code", "the clip range; a framework's code was read, not the authors'", code=TRL,
)  # fmt: skip
def luspo(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """One ratio for the response, as in GSPO, and a sum over its tokens in place of their mean."""
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ratio=GeometricSequence()), ConstantLength(1.0))

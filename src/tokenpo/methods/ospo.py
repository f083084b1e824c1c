"""OSPO: GRPO whose advantage is divided among segments by the reward that the response would earn without them.

    v(S)  = R of the response made of the segments S alone, in their order
    φ_ik  = the Owen value of segment k: the mean of v(S ∪ k) − v(S) over orders that keep unions together     (`gain`)
    A_i   = (R_i − mean_g R) / (std_g R + 1e-6)
    A_it  = A_i + share · (K_i φ_ik − Σ_j φ_ij) / (std_g R + 1e-6),   k the segment of t, K_i segments
    J = 1/N Σ_i 1/|o_i| Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

It is shaping by the potential Φ_k = Σ_{j≤k} (φ_j − mean φ), which is 0 before and after the response: the mean of A_it
over the segments is A_i.
Reconstructed from the abstracts of v1 and v2 and from summaries. Theirs: Shapley-Owen values of coalitions of segments,
shaping by a potential, the response's advantage redistributed, the task's own feedback, no learnt value. Ours:
four segments of nearly equal numbers of tokens, two to a union (`separator` cuts at lines; the paper cuts at phrases
and sentences); segments that a coalition leaves out are cut from the text; all coalitions that the exact value needs
are scored, so there are at most ten segments; a segment gets its own shaping and not the sum over later segments;
share 1, in units of the group's deviation; 0 where the rewards of a group are equal, and no differences between
segments where they are equal up to rounding; GRPO's clip and denominator.
Departures: unknown, as the paper's form was not read.
Note: φ_k depends on the segments after k, so Φ is no function of the prefix: the paper claims that the optimal policy
stays the same, and for this form that does not follow.
Note: it suits tasks that reward the text itself. Where the verifier reads only an answer at the end, the segment with
the answer gets all the value and the reasoning before it none, so the reasoning gets less than from GRPO: on the
quickstart it does not learn (docs/log.md, "OSPO, iGRPO and RTO").
Note: the differences between segments have no bound where a group's rewards differ little. Rewards 0.5 and 0.5001 with
gains of 0.4 and 0.1 give advantages of 15,000. It suits rewards that are clearly apart, as those of right and wrong.
Note: the embedded engine has 11 parts of a response scored by default, and samples nothing for them.
Reductions: share = 0, one segment, or segments of equal value are GRPO.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import Clip, Coalitions, FixedBounds, SegmentShare, SequenceMean
from ..core.parts.coalitions import MOST
from ..core.ranges import Count, NotNegative, TokenId, whole
from .options import High, Low
from .paper import Paper


@Paper(
    "Owen-Shapley Policy Optimization: A Principled RL Algorithm for Generative Search LLMs",
    "2601.08403",
    "second-hand + reconstructed",
    "only the abstract and summaries were read; the page names what is ours",
)
def ospo(
    *,
    segments: Annotated[int, "largest number of segments of a response", whole(1, MOST)] = 4,
    separator: Annotated[TokenId | None, "id of the token that ends a unit; segments are of whole units"] = None,
    union: Annotated[Count, "number of neighbouring segments of a union; 1 is Shapley's value"] = 2,
    share: Annotated[NotNegative, "factor of the segments' differences; 0 is GRPO"] = 1.0,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Credits each segment with the reward that parts of the response earn with it and do not earn without it."""
    credit = SegmentShare(Coalitions(segments, separator, union), share)
    return Objective(credit, Clip(FixedBounds(low, high)), SequenceMean())

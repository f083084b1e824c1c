"""GSPO and GSPO-token (eq. 5, 7 and 13): the ratio of whole responses.

    s_i = exp(mean_t log r_it)
    J = 1/N Σ_i min(s_i A_i, clip(s_i, 1−low, 1+high) A_i)
    GSPO-token:  s_it = sg[s_i] · exp(lp − sg[lp]) in its place, token by token

Defaults: low 3e-4, high 4e-4 (code): a length-normalised ratio hardly leaves 1.
Departures: the authors' code is not released; frameworks' was read. log r_it is bounded to ±20 nats, verl's log s_it to
10 from above. At a token beyond, GSPO has no gradient; GSPO-token keeps it.
Reductions: GSPO-token has GSPO's value and gradient as long as the advantage is constant in a response and no log r_it
lies beyond the bound.
"""

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, GeometricSequence, GeometricToken, GroupAdvantage, SequenceMean
from .options import High, Low
from .paper import TRL, VERL, Paper

PAPER = Paper("Group Sequence Policy Optimization", "2507.18071", "code", code=f"{VERL}; {TRL}")


@PAPER
def gspo(*, low: Low = 3e-4, high: High = 4e-4) -> Objective:
    """One likelihood ratio for the response, normalised by its length, clipped as a whole."""
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ratio=GeometricSequence()), SequenceMean())


@PAPER
def gspo_token(*, low: Low = 3e-4, high: High = 4e-4) -> Objective:
    """GSPO's ratio in a form that takes token-level advantages."""
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ratio=GeometricToken()), SequenceMean())

"""EB-CISPO: a baseline that leans on the other prompts, under a wide detached clip. A composition of ours.

    V_i = ((n−1) · mean of the group's others + κ · mean of the other groups) / (n − 1 + κ)
    κ   = Σ_i (R_i − mean_g)²/(N − K) / between;   between = variance of the K group means − within · mean_g 1/n_g
    A_i = (R_i − V_i) / (std of the batch + 1e-6),   J = 1/Σ|o_i| Σ_i Σ_t sg[clip(r_it, 1−low, 1+high)] · A_i · lp_it

Where prompts differ by no more than chance, between ≤ 0, V is the mean of the other groups; where they differ, it is
nearly RLOO's. A group of wrong responses alone is still pushed down: other prompts say that it could have been right.
Defaults: high 2.0, so that a token weighs at most 3; low 1.0, open. Both were chosen, with the parts, among 16
candidates by a rule written down before: "A composition of ours" in the documentation. EBPO (2602.05165) shrinks to a
mean that it remembers over batches; here nothing is remembered.
Reductions: with one group in the batch the credit is RLOO's over the deviation; at lp = lp_old the gradient is the
plain policy gradient's.
"""

from ..core.objective import Objective
from ..core.parts import DetachedClip, FixedBounds, ShrunkAdvantage, TokenMean
from .options import Ceiling, Floor
from .paper import Paper


@Paper(
    "Shrinking the Variance: Shrinkage Baselines for Reinforcement Learning with Verifiable Rewards", "2511.03710",
    "own", "the idea of the baseline is the paper's, whose abstract was read; estimate, surrogate and choice are ours",
)  # fmt: skip
def eb_cispo(*, high: Ceiling = 2.0, low: Floor = 1.0) -> Objective:
    """The baseline leans on the other prompts where groups say little; the importance weight is clipped, detached."""
    return Objective(ShrunkAdvantage(), DetachedClip(FixedBounds(low, high)), TokenMean())

"""RLSD: a teacher that knows the answer weighs each token's advantage by how much it prefers the token.

    w_it = clip(exp(sign(A_i) x_it), 1 − eps, 1 + eps),   x_it = log q(y_it) − lp_old,it      (`teacher_logprob`)
    J = 1/N Σ_i 1/|o_i| Σ_t (1 − lam + lam w_it) min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

A_i is GRPO's, and keeps its sign. q is meant to be the policy itself with the answer in its context; the engine's
teacher is used as q.
Expected gradient: neither that of the reward nor that of a divergence, as the weight depends on the action.
Defaults: lam 0.5, eps 0.2 and the loss of GRPO (code).
Departures: lam is constant (in the code it may grow and fade), and wrong responses are not weighed alone. The code adds
1e-4 to the deviation.
Reductions: lam = 0 or eps = 0 is GRPO, and so is a teacher that agrees with the old policy.
"""

from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.ops.ratio import log_ratio
from ..core.parts import BatchWeight, Clip, FixedBounds, GroupAdvantage, SequenceMean
from ..core.ranges import Share
from ..core.types import Batch
from .options import High, Low
from .paper import Paper

SWIFT = "modelscope/ms-swift@070fedc:swift/rl_core/advantage.py"
Mixed = Annotated[Share, "share of the weight that the teacher decides"]
Reach = Annotated[Share, "how far its weight may leave 1"]


class TeacherWeight(BatchWeight):
    """1 − lam + lam · clip(exp(sign(A) · x), 1 ± eps), x the teacher's log-ratio to the old policy."""

    reads = {"teacher_logprob"}
    lam: Mixed
    eps: Reach

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
def rlsd(*, low: Low = 0.2, high: High = 0.2, lam: Mixed = 0.5, eps: Reach = 0.2) -> Objective:
    """GRPO whose advantage is weighted token by token by an informed teacher."""
    weights = (TeacherWeight(lam, eps),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=weights)

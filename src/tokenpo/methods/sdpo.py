"""SDPO: the policy learns from itself with a right answer of the same group added to its context.

    x_it = log q(y_it) − lp_it,   q the informed policy      (`teacher_logprob`)
    J = 1/N Σ_i e_i 1/|o_i| Σ_t sg[min(r_it, cap) x_it] lp_it
    e_i = 1[another response of the group has R ≥ threshold]

This is the sampled-token form. The reported value is min(r, cap) x; the gradient is that of J.
Expected gradient, on policy: that of KL(π ‖ q) at the sampled states, over the length of the response, which is the
policy's own choice. Rewards only decide which responses have an informed teacher.
Defaults: cap 2, threshold 1 and the mean of response means (code).
Departures: no feedback of an environment and no mixture with a policy loss (`tokenpo.with_teacher` mixes). The engine
builds q's context; a response without an example adds nothing here, whatever its teacher's log-probabilities are.
Reductions: where the teacher is the current policy, nothing moves.
"""

from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import BatchWeight, NoCredit, SequenceMean, Signal, TeacherKl, TokenRatio, Unclipped
from ..core.ranges import Finite, Positive
from ..core.types import Batch, Rollouts
from .paper import Paper

Cap = Annotated[Positive, "largest ratio that weighs a token"]
Example = Annotated[Finite, "reward from which a response is an example to the others"]


class HasExample(Signal):
    """1 where another response of the group earned at least the threshold, else 0."""

    threshold: Example

    def __call__(self, rollouts: Rollouts) -> Tensor:
        alive = rollouts.mask.any(1)
        right = (alive & (rollouts.reward >= self.threshold)).double()
        others = Groups.of(rollouts.group, alive).sum(right) - right
        return (others > 0).to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)


class Informed(BatchWeight):
    """min(r, cap), and 0 for a response without an example."""

    cap: Cap
    example: HasExample

    def of_batch(self, batch: Batch) -> Tensor:
        return TokenRatio()(batch).detach().clamp(max=self.cap) * batch.signal(self.example)


@Paper(
    "Reinforcement Learning via Self-Distillation (SDPO)",
    "2601.20802",
    "code",
    "a framework was read, not the paper or the authors' code",
    code="trl 1.16.0:trl/experimental/sdpo/sdpo_trainer.py",
)
def sdpo(*, cap: Cap = 2.0, threshold: Example = 1.0) -> Objective:
    """The policy itself, given a right answer of the group as context, is the teacher."""
    penalties = (TeacherKl(1.0, scale=Informed(cap, HasExample(threshold))),)
    return Objective(NoCredit(), Unclipped(), SequenceMean(), penalties=penalties)

"""SPO-chain: segments cut at improbable tokens, each credited with its rise in the mean reward of continuations.

    cuts: before the 1st, (1 + interval)-th, (1 + 2 interval)-th ... of the tokens with p_old < below
    V(s)  = mean R of `continuations` continuations from s, at every cut
    A_it  = V(after the segment of t) − V(before it);   after the last R_i, before the first cut 0     (`gain`)
    Â_it  = (A_it − mean A) / √(var A + 1e-8) over the tokens with p_old < below, 0 on the others
    J = mean over the tokens with p_old < below of min(r_it Â_it, clip(r_it, 1−low, 1+high) Â_it)

Defaults: interval 5, below 0.9, 9 continuations, clip 0.2/0.2 (code).
Departures: the mean of J is over the rollout batch, theirs over a minibatch. log r_it is bounded to ±20, theirs to ±10,
and a minibatch whose mean ratio exceeds 10 is skipped there. The scripts add a divergence of 0.0001 from the reference,
which `train.reference_kl` adds here. The paper's tree, in which continuations are trained on too, is not implemented.
Note: the continuations cost sampled tokens: `continued_tokens` of a run counts them.
"""

from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Clip, Continuations, FixedBounds, Improbable, SignalWeight, TokenMean, WhitenedGain
from ..core.parts.credit import improbable
from ..core.parts.part import Signal
from ..core.ranges import Count, Fraction
from ..core.types import Rollouts
from .options import High, Low
from .paper import Paper


class OverImprobable(Signal):
    """1[p_old < below] over its mean on the rollout batch's tokens: it turns a mean over all into one over these."""

    below: Fraction

    def __call__(self, rollouts: Rollouts) -> Tensor:
        kept = improbable(rollouts, self.below)
        return (kept.double() * rollouts.mask.sum() / kept.double().sum().clamp(min=1)).to(rollouts.old_logprob.dtype)


@Paper(
    "Segment Policy Optimization: Improved Credit Assignment in Reinforcement Learning for LLMs",
    "2505.23564",
    "code",
    code="AIFrameResearch/SPO@b9fc6a2:src/treetune/episode_generators/math_episode_generator_with_mc_advantages.py; "
    "AIFrameResearch/SPO@b9fc6a2:src/treetune/trainers/ppo_trainer.py",
)
def spo(
    *,
    interval: Annotated[Count, "number of improbable tokens of a segment"] = 5,
    below: Annotated[Fraction, "tokens whose old probability is below this are improbable"] = 0.9,
    continuations: Annotated[Count, "number of continuations sampled from each cut"] = 9,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Credits segments between improbable tokens with their rise in mean reward; only improbable tokens learn."""
    credit = WhitenedGain(Continuations(Improbable(interval, below), continuations), below)
    weights = (SignalWeight(OverImprobable(below)),)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)

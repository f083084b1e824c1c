"""TR-GRPO (GRPO-SG): tokens weigh more the more probable they are.

Paper: Token-Regulated GRPO (2511.00066, v1..v4); provenance: second-hand + reconstructed: the form of the weight is our
reading. With its constants w is exactly 1 at p = mu; the other published transcription is constant and cannot be right.

    w_it = clip(alpha · sigmoid(tau (p_it − mu)), lower, upper),   p = exp(lp), detached
    J = GRPO's with A_i replaced by w_it A_i

Defaults: alpha 2, tau 9, mu 0.25, lower 1.0, upper 1.4 (second-hand); clip 0.2/0.2 and beta 0 as in GRPO.
Options: weight_placement "ratio" puts w inside minimum and clip, the literal second-hand reading: a confident correct
token then loses its gradient as soon as w > 1 + high. normalise_weights divides by the mean weight, so that learning
rates compare. reverse weighs improbable tokens more (ablation).
Reductions: lower = upper = 1 is GRPO.
"""

from __future__ import annotations

import math
import warnings

from ..base.errors import choose
from ..core.objective import Objective
from ..core.parts import (
    BatchWeight,
    Clip,
    FixedBounds,
    GroupAdvantage,
    NormalisedWeight,
    ProbabilityWeight,
    ReferenceKl,
    SequenceMean,
    TokenRatio,
    WeightedRatio,
)
from ..core.parts.weights import Sigmoid
from ..core.ranges import POSITIVE, require_value
from .paper import Paper, published

PAPER = Paper(
    "Token-Regulated Group Relative Policy Optimization for Stable RL in Large Language Models", "2511.00066",
    "v1..v4", "second-hand + reconstructed",
    "the form of the weight is our reading of its constants",
)  # fmt: skip


@published(PAPER)
def tr_grpo(
    *,
    low: float = 0.2,
    high: float = 0.2,
    alpha: float = 2.0,
    tau: float = 9.0,
    mu: float = 0.25,
    lower: float = 1.0,
    upper: float = 1.4,
    weight_placement: str = "advantage",
    weight_prob: str = "current",
    normalise_weights: bool = False,
    reverse: bool = False,
    beta: float = 0.0,
    kl_weighting: str = "none",
) -> Objective:
    """GRPO whose tokens weigh more the more probable they are.

    Args:
        low: clip below.
        high: clip above.
        alpha: height of the sigmoid, >= 0.
        tau: its steepness; below 0 it falls, as with reverse.
        mu: the probability at which the weight is alpha / 2.
        lower: smallest weight, >= 0.
        upper: largest weight, >= lower.
        weight_placement: "advantage", or "ratio" (inside minimum and clip).
        weight_prob: probability under the "current" or the "old" policy, detached.
        normalise_weights: divide by the mean weight of the batch.
        reverse: sigmoid of mu − p instead.
        beta: coefficient of the k3 divergence from the reference; 0 asks for no reference.
        kl_weighting: "none", "scale" (the divergence) or "inside" (the ratio in it).
    """
    curve = Sigmoid(alpha, -tau if reverse else tau, mu, lower, upper)
    weight = ProbabilityWeight(curve, old=choose("tr_grpo: weight_prob", weight_prob, {"current": False, "old": True}))
    inside_ratio = choose("tr_grpo: weight_placement", weight_placement, {"advantage": False, "ratio": True})
    if inside_ratio:
        _warn_of_clipped(curve, high, over_mean=normalise_weights)
    factor = NormalisedWeight.of(weight) if normalise_weights else weight
    return Objective(
        name="tr_grpo",
        credit=GroupAdvantage(),
        surrogate=Clip(FixedBounds(low, high), WeightedRatio(TokenRatio(), factor) if inside_ratio else TokenRatio()),
        weights=() if inside_ratio else (factor,),
        penalties=_penalties(beta, kl_weighting, factor, lower),
        aggregate=SequenceMean(),
    )


def _penalties(beta: float, kl_weighting: str, factor: BatchWeight, lower: float) -> tuple[ReferenceKl, ...]:
    slots = {"none": (None, None), "scale": (factor, None), "inside": (None, factor)}
    scale, inside = choose("tr_grpo: kl_weighting", kl_weighting, slots)
    if not beta:
        return ()
    if inside is not None:
        require_value("tr_grpo", "lower", lower, POSITIVE.because("as kl_weighting='inside' takes its logarithm"))
    return (ReferenceKl(beta, scale=scale, inside=inside),)


def _warn_of_clipped(curve: Sigmoid, high: float, *, over_mean: bool) -> None:
    # Over its mean a weight may be what it is over the smallest.
    smallest = curve.low if over_mean else 1.0
    most = curve.high / smallest if smallest > 0 else math.inf
    if most > 1 + high:
        warnings.warn(
            f"tr_grpo: inside the ratio a weight above {1 + high:g} clips confident correct tokens, and it may be "
            f"{most:g}: they get no gradient; narrow lower and upper, or raise high",
            stacklevel=4,
        )

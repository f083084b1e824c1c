"""TR-GRPO (GRPO-SG): tokens weigh more the more probable they are.

Paper: 2511.00066, Token-Regulated GRPO in v1, Sharpness-Controlled GRPO in v2, Sharpness-Guided GRPO (GRPO-SG) in v3
and v4; provenance: second-hand + reconstructed: the form of the weight is our reading, and the choice among the
readings is ours. With its constants w is exactly 1 at p = mu and reaches 1.4 at p = 0.344. A transcription that was
found is constant in p and cannot be right; a third reading takes mu out of the sigmoid: shape="outside".

    w_it = clip(alpha · sigmoid(tau (p_it − mu)), lower, upper),   p = exp(lp), detached
    outside:  w_it = clip(alpha (sigmoid(tau p_it) − mu), lower, upper)
    J = GRPO's with A_i replaced by w_it A_i

Defaults: alpha 2, tau 9, mu 0.25, lower 1.0, upper 1.4 (second-hand); clip 0.2/0.2 and beta 0 as in GRPO.
Options: weight_placement "ratio" puts w inside minimum and clip, the literal second-hand reading: a confident correct
token then loses its gradient as soon as w > 1 + high. weight_prob and kl_weighting are open in what could be read. A
negative tau weighs improbable tokens more (ablation). shape "outside" crosses 1 at p = 0.122 and 1.4 at p = 0.327.
Reductions: lower = upper = 1 is GRPO.
"""

from __future__ import annotations

import warnings

from ..base.errors import choose
from ..core.objective import Objective
from ..core.parts import (
    Clip,
    FixedBounds,
    GroupAdvantage,
    ProbabilityWeight,
    ReferenceKl,
    SequenceMean,
    TokenRatio,
    WeightedRatio,
)
from ..core.parts.weights import Sigmoid
from ..core.ranges import POSITIVE, Finite, Limit, NotNegative, Share, require
from .paper import Paper, published

PAPER = Paper(
    "Token-Regulated Group Relative Policy Optimization for Stable Reinforcement Learning in Large Language Models "
    "(v1); Sharpness-Controlled Group Relative Policy Optimization (v2); Sharpness-Guided Group Relative Policy "
    "Optimization via Probability Shaping (v3, v4)",
    "2511.00066", "v1..v4", "second-hand + reconstructed",
    "the form of the weight is our reading of its constants",
)  # fmt: skip


@published(PAPER)
def tr_grpo(
    *,
    low: Share = 0.2,
    high: Limit = 0.2,
    alpha: NotNegative = 2.0,
    tau: Finite = 9.0,
    mu: Finite = 0.25,
    lower: NotNegative = 1.0,
    upper: NotNegative = 1.4,
    shape: str = "inside",
    weight_placement: str = "advantage",
    weight_prob: str = "current",
    beta: NotNegative = 0.0,
    kl_weighting: str = "none",
) -> Objective:
    """GRPO whose tokens weigh more the more probable they are.

    Args:
        low: clip below.
        high: clip above.
        alpha: height of the sigmoid, >= 0.
        tau: its steepness; below 0 it falls.
        mu: the probability at which the weight is alpha / 2; with shape "outside", what is taken from the sigmoid.
        lower: smallest weight, >= 0.
        upper: largest weight, >= lower.
        shape: mu "inside" the sigmoid, or "outside": alpha (sigmoid(tau p) − mu).
        weight_placement: "advantage", or "ratio" (inside minimum and clip).
        weight_prob: probability under the "current" or the "old" policy, detached.
        beta: coefficient of the k3 divergence from the reference; 0 asks for no reference.
        kl_weighting: "none", "scale" (the divergence) or "inside" (the ratio in it).
    """
    old = choose("tr_grpo: weight_prob", weight_prob, {"current": False, "old": True})
    outside = choose("tr_grpo: shape", shape, {"inside": False, "outside": True})
    weight = ProbabilityWeight(Sigmoid(alpha, tau, mu, lower, upper, outside), old)
    inside_ratio = choose("tr_grpo: weight_placement", weight_placement, {"advantage": False, "ratio": True})
    if inside_ratio and upper > 1 + high:
        warnings.warn(
            f"tr_grpo: inside the ratio a weight above {1 + high:g} clips confident correct tokens, and it may be "
            f"{upper:g}: they get no gradient; lower upper, or raise high",
            stacklevel=3,
        )
    return Objective(
        name="tr_grpo",
        credit=GroupAdvantage(),
        surrogate=Clip(FixedBounds(low, high), WeightedRatio(TokenRatio(), weight) if inside_ratio else TokenRatio()),
        weights=() if inside_ratio else (weight,),
        penalties=_penalties(beta, kl_weighting, weight, lower),
        aggregate=SequenceMean(),
    )


def _penalties(beta: float, kl_weighting: str, weight: ProbabilityWeight, lower: float) -> tuple[ReferenceKl, ...]:
    slots = {"none": (None, None), "scale": (weight, None), "inside": (None, weight)}
    scale, inside = choose("tr_grpo: kl_weighting", kl_weighting, slots)
    if not beta:
        return ()
    if inside is not None:
        require("tr_grpo", "lower", lower, POSITIVE.because("as kl_weighting='inside' takes its logarithm"))
    return (ReferenceKl(beta, scale=scale, inside=inside),)

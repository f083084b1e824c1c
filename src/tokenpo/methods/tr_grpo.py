"""TR-GRPO (GRPO-SG): tokens weigh more the more probable they are.

Token-Regulated GRPO in v1, Sharpness-Controlled GRPO in v2, Sharpness-Guided GRPO (GRPO-SG) in v3 and v4. The form of
the weight is our reading: with its constants w is exactly 1 at p = mu and reaches 1.4 at p = 0.344. A transcription
that was found is constant in p and cannot be right; a third reading takes mu out of the sigmoid: shape="outside".

    w_it = clip(alpha · sigmoid(tau (p_it − mu)), lower, upper),   p = exp(lp), detached
    outside:  w_it = clip(alpha (sigmoid(tau p_it) − mu), lower, upper)
    J = GRPO's with A_i replaced by w_it A_i

Defaults: alpha 2, tau 9, mu 0.25, lower 1.0, upper 1.4 (second-hand); clip 0.2/0.2 and beta 0 as in GRPO.
Options: weight_placement "ratio", the literal second-hand reading, puts w inside minimum and clip: a confident correct
token then loses its gradient as soon as w > 1 + high. weight_prob and kl_weighting are open in what could be read. A
negative tau weighs improbable tokens more (ablation). shape "outside" crosses 1 at p = 0.122 and 1.4 at p = 0.327.
Reductions: lower = upper = 1 is GRPO.
"""

import warnings
from typing import Annotated, Literal

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, ProbabilityWeight, ReferenceKl, SequenceMean, TokenRatio, WeightedRatio
from ..core.parts.credit import GroupAdvantage
from ..core.parts.weights import Sigmoid
from ..core.ranges import POSITIVE, Finite, NotNegative, require
from .options import Beta, High, Low
from .paper import Paper


@Paper(
    "Token-Regulated Group Relative Policy Optimization for Stable Reinforcement Learning in Large Language Models "
    "(v1); Sharpness-Controlled Group Relative Policy Optimization (v2); Sharpness-Guided Group Relative Policy "
    "Optimization via Probability Shaping (v3, v4)", "2511.00066", "second-hand + reconstructed",
    "the form of the weight is our reading of its constants", version="v1..v4",
)  # fmt: skip
def tr_grpo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    alpha: Annotated[NotNegative, "height of the sigmoid"] = 2.0,
    tau: Annotated[Finite, "its steepness; below 0 it falls"] = 9.0,
    mu: Annotated[Finite, 'where the weight is alpha / 2; with shape "outside" it is taken from the sigmoid'] = 0.25,
    lower: Annotated[NotNegative, "smallest weight"] = 1.0,
    upper: Annotated[NotNegative, "largest weight, >= lower"] = 1.4,
    shape: Annotated[Literal["inside", "outside"], "mu inside the sigmoid, or alpha (sigmoid(tau p) − mu)"] = "inside",
    weight_placement: Annotated[
        Literal["advantage", "ratio"], "on the advantage, or on the ratio, inside minimum and clip"
    ] = "advantage",
    weight_prob: Annotated[Literal["current", "old"], "the policy of the probability, detached"] = "current",
    beta: Beta = 0.0,
    kl_weighting: Annotated[
        Literal["none", "scale", "inside"], "the weight scales the divergence, or the ratio inside it"
    ] = "none",
) -> Objective:
    """GRPO whose tokens weigh more the more probable they are."""
    weight = ProbabilityWeight(Sigmoid(alpha, tau, mu, lower, upper, shape == "outside"), weight_prob == "old")
    inside_ratio = weight_placement == "ratio"
    if inside_ratio and upper > 1 + high:
        warnings.warn(
            f"tr_grpo: inside the ratio a weight above {1 + high:g} clips confident correct tokens, and it may be "
            f"{upper:g}: they get no gradient; lower upper, or raise high",
            stacklevel=3,
        )
    if beta and kl_weighting == "inside":
        require("tr_grpo", "lower", lower, POSITIVE.because("as kl_weighting='inside' takes its logarithm"))
    scale, inside = {"none": (None, None), "scale": (weight, None), "inside": (None, weight)}[kl_weighting]
    ratio = WeightedRatio(TokenRatio(), weight) if inside_ratio else TokenRatio()
    return Objective(
        GroupAdvantage(),
        Clip(FixedBounds(low, high), ratio),
        SequenceMean(),
        weights=() if inside_ratio else (weight,),
        penalties=(ReferenceKl(beta, scale=scale, inside=inside),) if beta else (),
    )

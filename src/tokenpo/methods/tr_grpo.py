"""TR-GRPO: weights by the probability of a token."""

from typing import Annotated, Literal

from ..core.objective import Objective
from ..core.parts.credit import GroupAdvantage
from ..core.parts.loss import ReferenceKl, SequenceMean
from ..core.parts.surrogate import Clip, FixedBounds, TokenRatio, WeightedRatio
from ..core.parts.weights import ProbabilityWeight, Sigmoid
from ..core.ranges import POSITIVE, Finite, NotNegative, require
from .options import Beta, High, Low
from .paper import Paper


@Paper(
    "Token-Regulated Group Relative Policy Optimization for Stable Reinforcement Learning in Large Language Models "
    "(v1); Sharpness-Controlled Group Relative Policy Optimization (v2); Sharpness-Guided Group Relative Policy "
    "Optimization via Probability Shaping (v3, v4)",
    "2511.00066",
    "second-hand + reconstructed",
    "the weight is our reading of its constants, on the advantage; public reviews put it inside the clip",
    version="v1..v4",
)
def tr_grpo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    alpha: Annotated[NotNegative, "height of the sigmoid"] = 2.0,
    tau: Annotated[Finite, "steepness of the sigmoid; below 0 it falls"] = 9.0,
    mu: Annotated[Finite, "probability with weight alpha / 2; in shape outside, subtracted from the sigmoid"] = 0.25,
    lower: Annotated[NotNegative, "smallest weight"] = 1.0,
    upper: Annotated[NotNegative, "largest weight, >= lower"] = 1.4,
    shape: Annotated[Literal["inside", "outside"], "mu inside the sigmoid, or alpha (sigmoid(tau p) − mu)"] = "inside",
    weight_placement: Annotated[Literal["ratio", "advantage"], "ratio: inside minimum and clip"] = "advantage",
    weight_prob: Annotated[Literal["current", "old"], "the policy of the probability, detached"] = "current",
    beta: Beta = 0.0,
    kl_weighting: Annotated[
        Literal["inside", "scale", "none"], "the weight is on the ratio inside the divergence, scales it, or neither"
    ] = "none",
) -> Objective:
    """GRPO whose advantage is multiplied by a weight that grows with the token's probability.

        w_it = clip(alpha · sigmoid(tau (p_it − mu)), lower, upper),   without gradient
        J = 1/N Σ_i 1/|o_i| Σ_t [ w_it min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

    Two other readings of the paper are options: `shape="outside"`, and the "literal" one, which changes J's bracket.

        outside:  w_it = clip(alpha (sigmoid(tau p_it) − mu), lower, upper)
        literal:  min(w_it r_it A_i, clip(w_it r_it, 1−low, 1+high) A_i) − beta · k3(w_it π_ref/π)

    Defaults: the constants are second-hand; clip 0.2/0.2 and beta 0 as in GRPO.
    Options: weight_placement="ratio" with kl_weighting="inside" is the "literal" reading, which public reviews of the
    submission describe: eq. 9 there has the weight inside minimum and clip. Inside the divergence, too, it makes the
    divergence of identical policies differ from 0. Which policy gives p is not known. A negative tau weighs improbable
    tokens more.
    Departures: in the literal reading a right token of p ≥ 0.295 has w > 1 + high, and so no gradient at ratio 1. Hosts
    warn of it.
    Reductions: lower = upper = 1 is GRPO.
    """
    weight = ProbabilityWeight(Sigmoid(alpha, tau, mu, lower, upper, shape == "outside"), weight_prob == "old")
    inside_ratio = weight_placement == "ratio"
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

"""TR-GRPO (2511.00066): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, group_advantage, ratio, sequence_mean

CASES = crossed(
    [
        {},
        {"beta": 0.3},
        {"beta": 0.3, "weight_prob": "old", "low": 0.1, "high": 0.4},
        {"shape": "outside", "beta": 0.3},
        {"alpha": 1.5, "tau": -4.0, "mu": 0.4, "lower": 0.6, "upper": 1.2},
    ],
    weight_placement=("advantage", "ratio"),
    kl_weighting=("none", "scale", "inside"),
)


def tr_grpo(
    s, *, alpha=2.0, tau=9.0, mu=0.25, lower=1.0, upper=1.4, weight_placement="advantage", kl_weighting="none",
    beta=0.0, weight_prob="current", shape="inside", low=0.2, high=0.2,
):  # fmt: skip
    # w = clip(α σ(τ (p - μ)), lower, upper), without gradient: grows with the token's probability where τ > 0; a third
    # reading takes μ out of the sigmoid
    p = np.exp(s.logprob if weight_prob == "current" else s.old_logprob)
    w = alpha / (1 + np.exp(-tau * (p - mu))) if shape == "inside" else alpha * (1 / (1 + np.exp(-tau * p)) - mu)
    w = np.clip(w, lower, upper)

    # w multiplies the advantage, or the ratio inside min and clip
    A, (r, dr) = group_advantage(s), ratio(s)
    if weight_placement == "advantage":
        J, dJ = clipped(r, dr, w * A, low, high)
    else:
        J, dJ = clipped(w * r, w * dr, A, low, high)

    # - β KL with k3 = u - log u - 1, ∂k3/∂lp = 1 - u: of u = π_ref/π, the same scaled by w, or of u = w π_ref/π
    u = np.exp(s.ref_logprob - s.logprob) * (w if kl_weighting == "inside" else 1)
    scale = beta * (w if kl_weighting == "scale" else 1)
    return sequence_mean(s, J - scale * (u - np.log(u) - 1), dJ - scale * (1 - u))

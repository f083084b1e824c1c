"""TEPO (2604.12736 v2): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, crossed, group_advantage, sequence_ratio, token_mean

CASES = crossed(
    [{}, {"beta": 0.04, "low": 3e-4, "high": 4e-4}],
    decreasing=("delta", "analytic", "reference"),
    kl_target=("old", "reference"),
    estimator=("k3", "abs", "k1", "k2"),
)


def tepo(s, *, low=0.2, high=0.2, beta=1.0, decreasing="delta", kl_target="old", estimator="k3"):
    # min(s A, clip(s) A) with s_it = sg[s_i] exp(lp - sg[lp]): worth s_i, and ∂s_it/∂lp_it = s_i
    A = group_advantage(s)
    J, dJ = clipped(*sequence_ratio(s), A, low, high)

    # M_it = 1[A_i > 0] 1[entropy decreasing at (i, t)]; a logit step moves H by -A (p (lp + H) - Σ p² (log p + H));
    # "reference": by the surprise of the sampled token alone
    falls = {
        "delta": s.entropy < s.old_entropy,
        "analytic": A * (np.exp(s.logprob) * (s.logprob + s.entropy) - s.entropy_drift) > 0,
        "reference": s.logprob > s.ref_logprob,
    }[decreasing]
    M = (A > 0) & falls

    # - β M KL. The sampler's policy is the one that the expectation is over: of r = π/π_old, or of r = π_ref/π
    x, sign = (s.logprob - s.old_logprob, 1) if kl_target == "old" else (s.ref_logprob - s.logprob, -1)
    KL, dKL = {
        "k3": (np.exp(x) - 1 - x, np.exp(x) - 1), "abs": (np.abs(x), np.sign(x) * (np.abs(x) > 1e-5)),
        "k1": (-x, -1), "k2": (x**2 / 2, x),
    }[estimator]  # fmt: skip
    return token_mean(s, J - beta * M * KL, dJ - beta * M * sign * dKL)

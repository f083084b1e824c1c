"""TR-GRPO (2511.00066) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def tr_grpo(
    mask, reward, group, old_logprob, logprob, ref_logprob=None,
    *, alpha=2.0, tau=9.0, mu=0.25, lower=1.0, upper=1.4, weight_placement="advantage", kl_weighting="none", beta=0.0,
    weight_prob="current", shape="inside", low=0.2, high=0.2,
):  # fmt: skip
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # w = clip(α σ(τ (p - μ)), lower, upper), without gradient: grows with the token's probability where τ > 0
    p = np.exp(logprob if weight_prob == "current" else old_logprob)
    w = np.clip(alpha / (1 + np.exp(-tau * (p - mu))), lower, upper)

    # a third reading takes μ out of the sigmoid
    if shape == "outside":
        w = np.clip(alpha * (1 / (1 + np.exp(-tau * p)) - mu), lower, upper)

    # w multiplies the advantage, or the ratio inside min and clip
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)
    if weight_placement == "advantage":
        A = w * A
    else:
        r, dr = w * r, w * dr

    # min(r A, clip(r, 1 - low, 1 + high) A)
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # - β KL with k3 = u - log u - 1, ∂k3/∂lp = 1 - u: of u = π_ref/π, the same scaled by w, or of u = w π_ref/π
    if beta:
        u = np.exp(ref_logprob - logprob) * (w if kl_weighting == "inside" else 1)
        scale = w if kl_weighting == "scale" else 1
        J = J - beta * scale * (u - np.log(u) - 1)
        dJ = dJ - beta * scale * (1 - u)

    # mean over the tokens of a response, then over the responses
    share = mask / (alive.sum() * np.maximum(length, 1))
    return -(share * J).sum(), -share * dJ

"""TEPO (2604.12736 v2) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def tepo(
    mask, reward, group, old_logprob, logprob, ref_logprob=None, old_entropy=None, entropy=None, entropy_drift=None,
    *, low=0.2, high=0.2, beta=1.0, decreasing="delta", kl_target="old", estimator="k3",
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

    # s_it = sg[s_i] exp(lp - sg[lp]): worth s_i = exp(mean_t(lp - lp_old)), and ∂s_it/∂lp_it = s_i
    s = np.exp((mask * (logprob - old_logprob)).sum(1, keepdims=True) / np.maximum(length, 1))

    # min(s A, clip(s, 1 - low, 1 + high) A)
    J = np.minimum(s * A, np.clip(s, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, s <= 1 + high, s >= 1 - low) * A * s

    # M_it = 1[A_i > 0] 1[entropy decreasing at (i, t)]; a logit step moves H by -A (p (lp + H) - Σ p² (log p + H))
    if decreasing == "delta":
        falls = entropy < old_entropy
    elif decreasing == "reference":  # by the surprise of the sampled token alone
        falls = logprob > ref_logprob
    else:
        falls = A * (np.exp(logprob) * (logprob + entropy) - entropy_drift) > 0
    M = (A > 0) & falls

    # - β M KL. The sampler's policy is the one that the expectation is over: of r = π/π_old, or of r = π_ref/π
    x, sign = (logprob - old_logprob, 1) if kl_target == "old" else (ref_logprob - logprob, -1)
    KL = {"k3": np.exp(x) - 1 - x, "abs": np.abs(x), "k1": -x, "k2": x**2 / 2}[estimator]
    dKL = {"k3": np.exp(x) - 1, "abs": np.sign(x) * (np.abs(x) > 1e-5), "k1": -1 + 0 * x, "k2": x}[estimator] * sign
    J = J - beta * M * KL
    dJ = dJ - beta * M * dKL

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

"""GRPO-S (2508.04349 v6) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def grpo_s(
    mask, reward, group, old_logprob, logprob, old_entropy,
    *, b1=1.0, b2=0.1, mean="arithmetic", low=0.2, high=0.28, threshold=0.0,
):  # fmt: skip
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere
    size = np.maximum(length, 1)
    arithmetic = mean == "arithmetic"

    # Hbar_i = mean_t H_it, or exp(mean_t log H_it)
    H = np.where(mask, np.maximum(old_entropy, 1e-8), 1)
    Hbar = ((mask * H).sum(1) / size[:, 0]) if arithmetic else np.exp((mask * np.log(H)).sum(1) / size[:, 0])

    # O+: b1 + b2 Hbar_i / mean(Hbar);  O-: -b1 - b2 (1/Hbar_j) / mean(1/Hbar), means over the set
    average = np.mean if arithmetic else (lambda z: np.exp(np.mean(np.log(z))))
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        right, wrong = rows & (reward > threshold), rows & (reward <= threshold)
        if not (right.any() and wrong.any()):
            continue  # a group with one outcome teaches nothing
        shaped = np.zeros(len(reward))
        shaped[right] = b1 + b2 * Hbar[right] / average(Hbar[right])
        shaped[wrong] = -b1 - b2 * (1 / Hbar[wrong]) / average(1 / Hbar[wrong])
        A[rows, 0] = (shaped[rows] - shaped[rows].mean()) / (shaped[rows].std(ddof=1) + 1e-6)

    # w_i = mean_t r_it, |o_i| ∂w_i/∂lp_it = r_it; or w_i = exp(mean_t(lp - lp_old)), |o_i| ∂w_i/∂lp_it = w_i
    x = logprob - old_logprob
    if arithmetic:
        r = np.exp(np.clip(x, -20, 20))
        w, dw = (mask * r).sum(1, keepdims=True) / size, np.where(np.abs(x) <= 20, r, 0)
    else:
        w = np.exp((mask * x).sum(1, keepdims=True) / size)
        dw = w

    # min(w A, clip(w, 1 - low, 1 + high) A), mean over the responses
    J = np.minimum(w * A, np.clip(w, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, w <= 1 + high, w >= 1 - low) * A * dw
    share = mask / (alive.sum() * size)
    return -J[alive].mean(), -share * dJ

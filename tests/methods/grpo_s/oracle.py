"""GRPO-S (2508.04349 v6): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import (
    clipped,
    crossed,
    group_advantage,
    groups,
    ratio,
    response_mean,
    sequence_mean,
    sequence_ratio,
)  # fmt: skip

CASES = crossed(
    [{}, {"b1": 0.7, "b2": 0.5, "low": 0.01, "high": 0.02, "threshold": 0.3}], mean=("arithmetic", "geometric")
)


def grpo_s(s, *, b1=1.0, b2=0.1, mean="arithmetic", low=0.2, high=0.28, threshold=0.0):
    # Hbar_i = mean_t H_it, or exp(mean_t log H_it)
    H = np.maximum(s.old_entropy, 1e-8)
    Hbar = response_mean(s, H) if mean == "arithmetic" else np.exp(response_mean(s, np.log(H)))
    average = np.mean if mean == "arithmetic" else (lambda z: np.exp(np.mean(np.log(z))))

    # O+: b1 + b2 Hbar_i / mean(Hbar);  O-: -b1 - b2 (1/Hbar_j) / mean(1/Hbar), means over the set; a group with one
    # outcome teaches nothing
    shaped = np.zeros(len(s.reward))
    for rows in groups(s):
        right, wrong = rows[s.reward[rows] > threshold], rows[s.reward[rows] <= threshold]
        if len(right) and len(wrong):
            shaped[right] = b1 + b2 * Hbar[right, 0] / average(Hbar[right])
            shaped[wrong] = -b1 - b2 * (1 / Hbar[wrong, 0]) / average(1 / Hbar[wrong])

    # w_i = mean_t r_it, |o_i| ∂w_i/∂lp_it = r_it; or w_i = exp(mean_t(lp - lp_old)), |o_i| ∂w_i/∂lp_it = w_i
    w, dw = sequence_ratio(s)
    if mean == "arithmetic":
        r, dw = ratio(s)
        w = response_mean(s, r)
    return sequence_mean(s, *clipped(w, dw, group_advantage(s, shaped), low, high))

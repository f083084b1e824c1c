"""Off-policy sequence masking (2512.02556) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def opsm(
    mask, reward, group, old_logprob, logprob, ref_logprob, rollout_logprob, *,
    delta=0.5, anchor="old", low=0.2, high=0.2, beta=0.0,
):  # fmt: skip
    alive = mask.any(1)

    # A_i = (R_i - mean_g) / (std_g + 1e-6); 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # keep_i = 0 where A_i < 0 and the response was likelier before by more than delta nats a token
    before = old_logprob if anchor == "old" else rollout_logprob
    length = np.maximum(mask.sum(1, keepdims=True), 1)
    far = (mask * np.clip(before - logprob, -20, 20)).sum(1, keepdims=True) / length > delta
    keep = np.where((A < 0) & far, 0.0, 1.0)

    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)
    J = keep * np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = keep * np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # - beta r k3(y), y = lp_ref - lp: the derivative of r k3 is r (e^y - 1 - y) + r (1 - e^y) = -r y
    y = np.clip(ref_logprob - logprob, -20, 20)
    J = J - beta * r * (np.exp(y) - 1 - y)
    dJ = dJ + beta * r * y

    share = mask / (length * alive.sum())
    return -(share * J).sum(), -share * dJ

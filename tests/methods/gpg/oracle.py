"""GPG (2504.02546) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def gpg(mask, reward, group, logprob, *, sequence_mean=False):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = B / (B - M) (R_i - mean_g): M of the B rollouts are in groups whose rewards are all equal
    A = np.zeros((len(reward), 1))
    silent = 0
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = R - R.mean()
        else:
            silent += len(R)
    B = alive.sum()
    A = A * B / max(B - silent, 1)

    # A lp, without a ratio
    J = A * logprob
    dJ = A

    # mean over all tokens of the batch
    share = mask / mask.sum()

    # the authors' code for vision: mean over the tokens of a response, then over the responses
    if sequence_mean:
        share = mask / (B * np.maximum(mask.sum(1, keepdims=True), 1))
    return -(share * J).sum(), -share * dJ

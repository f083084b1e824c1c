"""Lopti (2505.12929) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def lopti(
    mask, reward, group, old_logprob, logprob, ref_logprob=None,
    *, part=None, eta=0.4, a=0.0, high_first=False, low=0.2, high=0.24, dual=10.0, beta=1e-3, bounded_kl=False,
):  # fmt: skip
    """`part`: 0 or 1 for the loss of the first or second pass, None for that of all tokens."""
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # A <- w A with w = a p_old + 1 - a: unlikely tokens weigh less
    p_old = np.exp(old_logprob)
    A = (a * p_old + 1 - a) * A

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # dual clip: for A < 0 the objective is never below dual · A
    if dual is not None:
        floor = (A < 0) & (r > dual)
        J = np.where(floor, dual * A, J)
        dJ = np.where(floor, 0, dJ)

    # - β k3, k3 = u - log u - 1 with u = π_ref / π; ∂k3/∂lp = 1 - u
    if beta:
        y = ref_logprob - logprob
        u = np.exp(y)
        k3, dk3 = u - y - 1, 1 - u
        if bounded_kl:  # the authors' code: log u within ±5, then k3 at most 10; flat where either binds
            k3 = np.exp(np.clip(y, -5, 5)) - np.clip(y, -5, 5) - 1
            dk3 = np.where((np.abs(y) <= 5) & (k3 <= 10), 1 - u, 0)
            k3 = np.minimum(k3, 10)
        J = J - beta * k3
        dJ = dJ - beta * dk3

    # the tokens of the pass: the unlikely ones p_old < η first, then the others (or the other way round)
    unlikely = p_old < eta
    in_pass = {None: mask, 0: unlikely ^ high_first, 1: ~unlikely ^ high_first}[part]

    # mean over all tokens of the batch, in the pass or not
    share = mask / mask.sum() * in_pass
    return -(share * J).sum(), -share * dJ

"""What the oracles share, in plain NumPy float64: values beside their hand-derived derivatives, nothing of the library.

`s` is a `Sample` of N rollouts with T tokens. J is an objective at each token and dJ its derivative by the token's lp.
"""

from itertools import product

import numpy as np


def cases(*options, suited=lambda s: s):
    """The sets of options that an oracle is compared with; `suited` makes of a batch one that it is defined for."""

    def register(oracle):
        oracle.cases, oracle.suited = options, suited
        return oracle

    return register


def crossed(cases, **choices):
    """Every set of options in `cases` with every combination of choices."""
    return [
        dict(zip(choices, chosen, strict=True)) | options for chosen in product(*choices.values()) for options in cases
    ]


def groups(s):
    """The rows of each group, without the rollouts that have no token: these count nowhere."""
    alive = s.mask.any(1)
    return [np.flatnonzero(alive & (s.group == g)) for g in np.unique(s.group[alive])]


def group_advantage(s, reward=None, *, eps=1e-6, std=True):
    """[N, 1]: A_i = (R_i - mean_g) / (std_g + eps), std with G - 1; 0 where a group's rewards are all equal.

    With std=False it is A_i = R_i - mean_g.
    """
    reward = s.reward if reward is None else reward
    A = np.zeros((len(reward), 1))
    for rows in groups(s):
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + eps if std else 1)
    return A


def whitened(x, on):
    """x [N, T] at the tokens `on` as (x - mean) / sqrt(var + 1e-8), var with n - 1; 0 at the others."""
    A, y = np.zeros(on.shape), x[on]
    if len(y) > 1:
        A[on] = (y - y.mean()) / np.sqrt(y.var(ddof=1) + 1e-8)
    return A


def ratio(s, before=None):
    """r_t = exp(lp - lp_old), the exponent kept within ±20, and ∂r/∂lp: r, or 0 beyond. `before` stands for lp_old."""
    x = s.logprob - (s.old_logprob if before is None else before)
    r = np.exp(np.clip(x, -20, 20))
    return r, np.where(np.abs(x) <= 20, r, 0)


def lengths(s):
    """[N, 1]: |o_i|, and 1 for a rollout without tokens."""
    return np.maximum(s.mask.sum(1, keepdims=True), 1)


def response_mean(s, x):
    """[N, 1]: the mean of x over the tokens of a response."""
    return (s.mask * x).sum(1, keepdims=True) / lengths(s)


def sequence_ratio(s):
    """s_i = exp(mean_t(lp - lp_old)) [N, 1], and |o_i| ∂s_i/∂lp_it = s_i."""
    w = np.exp(response_mean(s, s.logprob - s.old_logprob))
    return w, w


def clipped(r, dr, A, low=0.2, high=0.2, dual=None):
    """min(r A, clip(r, 1 - low, 1 + high) A), whose gradient lives where the clip does not bind against A.

    The dual clip: for A < 0 the objective is never below dual · A, and flat there.
    """
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr
    if dual is not None:
        floor = (A < 0) & (r > dual)
        J, dJ = np.where(floor, dual * A, J), np.where(floor, 0, dJ)
    return J, dJ


def likelihood(s, c):
    """sg[c] lp and its derivative: a coefficient without gradient in front of the log-likelihood."""
    return c * s.logprob, c


def k3(s):
    """k3 = u - log u - 1 with u = π_ref / π, and ∂k3/∂lp = 1 - u."""
    u = np.exp(s.ref_logprob - s.logprob)
    return u - np.log(u) - 1, 1 - u


def nearest_rank(x, q):
    """The q quantile of the numbers x: one of them, never a mean of two."""
    return np.sort(x)[round(q * (len(x) - 1))]


def loss(share, J, dJ):
    """-Σ share · J over the tokens, and its gradient [N, T]."""
    return -(share * J).sum(), -share * dJ


def token_mean(s, J, dJ):
    """The loss is minus the mean over all tokens of the batch."""
    return loss(s.mask / s.mask.sum(), J, dJ)


def sequence_sum(s, J, dJ):
    """The loss is minus the sum over the tokens of a response, then the mean over the responses."""
    return loss(s.mask / s.mask.any(1).sum(), J, dJ)


def sequence_mean(s, J, dJ):
    """The loss is minus the mean over the tokens of a response, then over the responses."""
    return sequence_sum(s, J / lengths(s), dJ / lengths(s))

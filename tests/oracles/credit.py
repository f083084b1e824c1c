"""Methods whose advantage of a response is special: loss and hand-derived gradient."""

from math import ceil, comb

import numpy as np

from .prelude import (
    cases,
    clipped,
    crossed,
    group_advantage,
    groups,
    k3,
    likelihood,
    ratio,
    response_mean,
    sequence_mean,
    sequence_ratio,
    token_mean,
    whitened,
)

mean_of_means = sequence_mean


@cases({}, {"low": 0.1, "high": 0.4})
def rloo(s, *, low=0.2, high=0.2):
    # A_i = R_i - mean of the other rollouts of the group; a rollout without others has nothing to be compared with
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        for i in rows if len(rows) > 1 else ():
            A[i, 0] = s.reward[i] - s.reward[rows[rows != i]].mean()
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases({}, {"low": 0.1, "high": 0.4, "dual": 2.0}, {"of": "advantages", "eps": 1e-4})
def lite_ppo(s, *, low=0.2, high=0.2, dual=None, of="rewards", eps=1e-6):
    # A_i = (R_i - mean_g) / (std + eps): one deviation (n - 1) for the batch, of the rewards or of what is left of them
    A, alive = group_advantage(s, std=False), s.mask.any(1)
    R = s.reward.copy()
    for rows in groups(s):
        R[rows] -= s.reward[rows].mean() if of == "advantages" else 0
    return token_mean(s, *clipped(*ratio(s), A / (R[alive].std(ddof=1) + eps), low, high, dual))


@cases({}, {"low": 0.1, "high": 0.4})
def prpo(s, *, low=0.2, high=0.2):
    # A_i = (R_i - mean) / (std + 1e-6) over the batch, std with n
    R = s.reward[s.mask.any(1)]
    return token_mean(s, *clipped(*ratio(s), ((s.reward - R.mean()) / (R.std() + 1e-6))[:, None], low, high))


@cases({}, {"delta": 0.0}, {"delta": np.inf})
def flash_reinforce(s, *, delta=3e-3):
    # J_i = q A_i where the mean over the response of the KL of (this token, another) from the sampler is <= delta
    A = s.reward - s.reward[s.mask.any(1)].mean()
    r, dr = ratio(s, s.rollout_logprob)
    p, q = (np.clip(np.exp(x), 1e-6, 1 - 1e-6) for x in (s.rollout_logprob, s.logprob))
    kl = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    c = A[:, None] * (response_mean(s, kl) <= delta)
    return sequence_mean(s, c * r, c * dr)


@cases({}, {"low": 0.1, "high": 0.4})
def remax(s, *, low=0.2, high=0.2):
    # A_i = R_i - b_i, b the reward of a greedy response
    return token_mean(s, *clipped(*ratio(s), (s.reward - s.baseline)[:, None], low, high))


@cases({})
def opo(s):
    # A_i = R_i - Σ_j |o_j| R_j / Σ_j |o_j|: the baseline of least variance if a gradient's square grows with the length
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        R = s.reward[rows]
        if R.min() < R.max():
            A[rows, 0] = R - np.average(R, weights=s.mask[rows].sum(1))

    # A lp, without a ratio: exactly on-policy
    return token_mean(s, *likelihood(s, A))


@cases({}, {"sequence_mean": True})
def gpg(s, *, sequence_mean=False):
    # A_i = B / (B - M) (R_i - mean_g): M of the B rollouts are in groups whose rewards are all equal
    B = s.mask.any(1).sum()
    M = sum(len(rows) for rows in groups(s) if np.ptp(s.reward[rows]) == 0)
    A = B / max(B - M, 1) * group_advantage(s, std=False)

    # A lp, without a ratio; the authors' code for vision takes the mean of a response first
    return (mean_of_means if sequence_mean else token_mean)(s, *likelihood(s, A))


@cases({})
def raft(s):
    # likelihood of the responses whose reward is positive, weighted by it: A = max(R, 0), J = A lp
    return token_mean(s, *likelihood(s, np.maximum(s.reward, 0)[:, None]))


@cases({}, {"low": 0.1, "high": 0.4})
def raft_pp(s, *, low=0.2, high=0.2):
    # A = max(R, 0): wrong responses teach nothing
    return token_mean(s, *clipped(*ratio(s), np.maximum(s.reward, 0)[:, None], low, high))


@cases({}, {"low": 0.1, "high": 0.4})
def reinforce_rej(s, *, low=0.2, high=0.2):
    # A = R, on the prompts that have both right and wrong answers; 0 on the others
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        A[rows, 0] = s.reward[rows] * (np.ptp(s.reward[rows]) > 0)
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases({}, {"low": 0.1, "high": 0.4}, {"beta": 0.3})
def reinforce_pp(s, *, low=0.2, high=0.2, beta=0.0):
    # the return at t: the response's reward - β Σ_{s >= t} (lp_old - lp_ref)_s, whitened over the tokens of the batch
    k1 = np.where(s.mask, s.old_logprob - s.ref_logprob, 0)
    A = whitened(s.reward[:, None] - beta * k1[:, ::-1].cumsum(1)[:, ::-1], s.mask)
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases({}, {"low": 0.1, "high": 0.4}, {"beta": 0.3})
def reinforce_pp_baseline(s, *, low=0.2, high=0.2, beta=0.0):
    # R_i - mean_g, whitened over the tokens of the batch
    A = whitened(group_advantage(s, std=False) + np.zeros(s.mask.shape), s.mask)

    # - β k2, k2 = (log u)² / 2 with u = π_ref / π; ∂k2/∂lp = -log u
    J, dJ = clipped(*ratio(s), A, low, high)
    y = s.ref_logprob - s.logprob
    return token_mean(s, J - beta * y**2 / 2, dJ + beta * y)


@cases({}, {"high": 0.28}, {"low": 0.1, "high": 0.4})
def eb_cispo(s, *, high=2.0, low=1.0):
    alive = s.mask.any(1)
    R = [s.reward[rows] for rows in groups(s)]
    N, K = alive.sum(), len(R)

    # variance within groups over variance between them, unbiased
    within = sum(((x - x.mean()) ** 2).sum() for x in R) / max(1, N - K)
    means = np.array([x.mean() for x in R])
    between = (means.var(ddof=1) if K > 1 else 0) - within * np.mean([1 / len(x) for x in R])

    # V_i from the group's others and from the other groups, in the proportion n - 1 : within / between
    A = np.zeros((len(s.reward), 1))
    for i in np.flatnonzero(alive):
        mates, others = alive & (s.group == s.group[i]), alive & (s.group != s.group[i])
        mates[i] = False
        n, V = mates.sum(), s.reward[i]
        if others.any() and (between <= 0 or n == 0):
            V = s.reward[others].mean()
        elif others.any():
            kappa = within / between
            V = (n * s.reward[mates].mean() + kappa * s.reward[others].mean()) / (n + kappa)
        elif n:
            V = s.reward[mates].mean()
        A[i, 0] = s.reward[i] - V
    spread = s.reward[alive].std(ddof=1) if N > 1 else 0
    A = A / (spread + 1e-6) if np.ptp(s.reward[alive]) > 0 else 0 * A

    # sg[clip(r)] A lp
    return token_mean(s, *likelihood(s, np.clip(ratio(s)[0], 1 - low, 1 + high) * A))


@cases({}, {"std": False}, {"low": 0.1, "high": 0.4})
def grpo_passk(s, *, std=True, low=0.2, high=0.2):
    # A of the best rollout = (R_(1) - R_(2)) / (std_g + 1e-6), std with G - 1: what the group's maximum owes to it.
    # Everybody else gets 0, and so does a tie; a rollout without others has nobody to beat
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        R = s.reward[rows]
        if len(R) > 1:
            second, best = np.sort(R)[-2:]
            A[rows[R.argmax()], 0] = (best - second) / (R.std(ddof=1) + 1e-6 if std else 1)
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases(
    {},
    {"baseline": "kept", "dual": None},
    {"baseline": "none"},
    {"low": 0.1, "high": 0.4, "dual": 10.0},
    *({"order": order} for order in (1, 2, 3, 50)),
    suited=lambda s: s.but(reward=np.abs(s.reward)),  # it is defined for rewards >= 0
)
def maxrl(s, *, baseline="practical", order=None, low=0.2, high=0.2, dual=3.0):
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        R = s.reward[rows]
        G, mu = len(R), R.mean()
        if G == 1:
            continue  # nothing to be compared with: 0
        if order is not None:
            # log p = -Σ_k (1 - p)^k / k up to k = order. The first term is told by the correct rollouts; (1 - p)^k is
            # the share of the k-subsets that are all wrong, C(f, k) / C(G, k), of which the wrong rollout i is in
            # C(f-1, k-1): -(1/k) C(f-1, k-1) / C(G, k) = -(1/G) C(f-1, k-1) / C(G-1, k-1), here G times that
            f = int((R <= 0).sum())
            fail = sum(comb(f - 1, k - 1) / comb(G - 1, k - 1) for k in range(2, min(order, f) + 1))
            A[rows, 0] = np.where(R > 0, 1.0, -fail)
        elif mu == 0:
            # nothing from a group without success, or "kept": the limit of (R - mu) / mu for R = 0
            A[rows, 0] = -1.0 if baseline == "kept" else 0.0
        else:
            # (R - mu) / mu; without a baseline R / mu: only the successes
            A[rows, 0] = (R - (0 if baseline == "none" else mu)) / (mu + 1e-6)
    return token_mean(s, *clipped(*ratio(s), A, low, high, dual))


@cases(
    {}, {"alpha": 2.0}, {"alpha": -0.5}, {"alpha": 0.0}, {"fraction": 1.0}, {"fraction": 0.01, "alpha": 1.0},
    {"only_correct": True, "alpha": 1.0}, {"low": 0.1, "high": 0.4},
)  # fmt: skip
def arm(s, *, alpha=0.1, fraction=0.2, only_correct=False, low=0.2, high=0.28):
    # A_i <- A_i + α (c(q) - c(o_i)) in groups whose rewards differ: c(q) = exp(mean log-probability of the prompt's
    # tokens), c(o) that of the response's least likely `fraction`
    A = group_advantage(s)
    for rows in groups(s):
        R = s.reward[rows]
        for i in rows:
            if R.min() < R.max() and (not only_correct or s.reward[i] > R.mean()):
                ranked = np.sort(s.old_logprob[i, s.mask[i]])
                least = ranked[: max(1, ceil(fraction * len(ranked)))]
                A[i, 0] += alpha * (np.exp(s.prompt_logprob[i]) - np.exp(least.mean()))
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases({}, {"low": 0.1, "high": 0.4}, {"eps": 1e-4})
def edge_grpo(s, *, low=0.2, high=0.2, eps=1e-6):
    # A_i <- A_i mean_j Hbar_j / Hbar_i, Hbar the mean entropy of a response's tokens, j over the batch
    Hbar = np.maximum(response_mean(s, s.old_entropy), 1e-8)
    A = group_advantage(s, eps=eps) * Hbar[s.mask.any(1)].mean() / Hbar
    return sequence_mean(s, *clipped(*ratio(s), A, low, high))


@cases({}, {"scale": 1.0, "history": 2}, {"anchor": "current", "scale": 1.5, "low": 0.1, "high": 0.4})
def ha_dw(s, *, past=(), scale=1.3, history=10, anchor="prior", low=0.2, high=0.2):
    """`past`: the mean rewards of the batches before this one, the oldest first."""
    # C = mean of the last `history` batch means, with or without this batch's own; at the very first its own
    y = s.reward[s.mask.any(1)].mean()
    seen = [*past, y] if anchor == "current" or not past else [*past]
    C = np.mean(seen[-history:])

    # A_i <- A_i λ exp(D M), D = -sign(A_i) sign(p^ - C), M = |p^ - C|, p^ the group's mean reward
    A = scale * group_advantage(s)
    for rows in groups(s):
        A[rows] *= np.exp(-np.sign(A[rows]) * (s.reward[rows].mean() - C))
    return sequence_mean(s, *clipped(*ratio(s), A, low, high))


@cases(
    {},
    {"additive": True, "threshold": 0.5},
    {"scale": 0.7, "shift": 0.1, "cap": 0.6, "beta": 0.3},
    {"by_score": True},
    {"by_score": True, "additive": True, "threshold": -0.5},
    {"shift": -0.5, "beta": 0.0, "dual": None, "low": 0.1, "high": 0.4},
)
def hmpo(
    s, *, low=0.2, high=0.28, dual=10.0, scale=1.0, shift=0.8, cap=1.0, additive=False, threshold=0.0, by_score=False,
    beta=1e-3,
):  # fmt: skip
    # R'_i = f(|o_i|) c_i with c_i = 1[R_i > threshold] and b the median length of the group's correct rollouts:
    # f(n) = clip(scale cos(π n / (2 b)) + shift, 0, cap) up to n = b, 0 beyond it and where nobody is correct
    length, shaped = s.mask.sum(1), np.zeros(len(s.reward))
    for rows in groups(s):
        correct = rows[s.reward[rows] > threshold]
        for i in correct:
            b, n = np.median(length[correct]), length[i]
            f = np.clip(scale * np.cos(np.pi * n / (2 * b)) + shift, 0.0, cap) if n <= b else 0.0
            shaped[i] = (1 + f if additive else f) * (s.reward[i] if by_score else 1)  # the authors' code: × score

    J, dJ = clipped(*ratio(s), group_advantage(s, shaped), low, high, dual)
    k, dk = k3(s)
    return token_mean(s, J - beta * k, dJ - beta * dk)


@cases(
    *crossed(
        [{}, {"b1": 0.7, "b2": 0.5, "low": 0.01, "high": 0.02, "threshold": 0.3}], mean=("arithmetic", "geometric")
    )
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

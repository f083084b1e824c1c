"""Methods that weigh, drop or hold tokens: loss and hand-derived gradient."""

import numpy as np

from .prelude import (
    cases,
    clipped,
    crossed,
    group_advantage,
    groups,
    k3,
    loss,
    nearest_rank,
    ratio,
    response_mean,
    sequence_mean,
    token_mean,
)


@cases(
    {},
    {"a": 0.3, "beta": 0.0},
    {"a": 1.0, "beta": 0.5, "dual": 3.0},
    {"low": 0.1, "high": 0.4, "a": 0.0},
    {"beta": 0.3, "bounded_kl": True},
)
def adv_reweight(s, *, a=0.2, low=0.2, high=0.24, dual=10.0, beta=1e-3, bounded_kl=False):
    # A <- w A with w = a p_old + 1 - a: unlikely tokens weigh less
    A = (a * np.exp(s.old_logprob) + 1 - a) * group_advantage(s)
    J, dJ = clipped(*ratio(s), A, low, high, dual)

    # - β k3; the authors' code bounds log u to ±5, then k3 to 10: flat where either binds
    k, dk = k3(s)
    if bounded_kl:
        y = s.ref_logprob - s.logprob
        near = np.clip(y, -5, 5)
        k = np.exp(near) - near - 1
        k, dk = np.minimum(k, 10), np.where((np.abs(y) <= 5) & (k <= 10), dk, 0)
    return token_mean(s, J - beta * k, dJ - beta * dk)


@cases(
    {},
    {"a": 0.3, "eta": 0.5},
    {"high_first": True, "beta": 0.3},
    {"dual": 3.0, "beta": 0.0, "low": 0.1, "high": 0.5},
    {"beta": 0.3, "bounded_kl": True},
)
def lopti(
    s, *, part=None, eta=0.4, a=0.0, high_first=False, low=0.2, high=0.24, dual=10.0, beta=1e-3, bounded_kl=False
):
    """`part`: 0 or 1 for the loss of the first or second pass, None for that of all tokens."""
    # A <- w A with w = a p_old + 1 - a: unlikely tokens weigh less
    p_old = np.exp(s.old_logprob)
    J, dJ = clipped(*ratio(s), (a * p_old + 1 - a) * group_advantage(s), low, high, dual)

    # - β k3; the authors' code bounds log u to ±5, then k3 to 10: flat where either binds
    k, dk = k3(s)
    if bounded_kl:
        y = s.ref_logprob - s.logprob
        near = np.clip(y, -5, 5)
        k = np.exp(near) - near - 1
        k, dk = np.minimum(k, 10), np.where((np.abs(y) <= 5) & (k <= 10), dk, 0)

    # the tokens of the pass: the unlikely ones p_old < η first, then the others (or the other way round)
    unlikely = p_old < eta
    on = {None: s.mask, 0: unlikely ^ high_first, 1: ~unlikely ^ high_first}[part]
    return token_mean(s, on * (J - beta * k), on * (dJ - beta * dk))


@cases(
    *crossed(
        [{}, {"quantile": 0.5, "kl": 0.3, "dual": 3.0}, {"low_clip": 0.1, "high_clip": 0.9, "quantile": 0.0}],
        entropy=("old", "current"),
    )
)
def archer(s, *, entropy="old", low_clip=0.2, high_clip=0.5, kl=1e-3, quantile=0.8, dual=None):
    # high-entropy tokens of a response: above its own quantile
    H = s.old_entropy if entropy == "old" else s.entropy
    top = np.zeros(s.mask.shape, bool)
    for row, on in enumerate(s.mask):
        if on.any():
            top[row] = H[row] > nearest_rank(H[row, on], quantile)
    clip = np.where(top, high_clip, low_clip)

    # - kl · k3 on the low-entropy tokens
    J, dJ = clipped(*ratio(s), group_advantage(s), clip, clip, dual)
    k, dk = k3(s)
    return token_mean(s, J - kl * ~top * k, dJ - kl * ~top * dk)


@cases()
def clip_cov(s, *, selected, low=1.0, high=1.0):
    """`selected` [N, T] bool: the tokens that the random draw took (its law is `eligible`, below)."""
    # the selected tokens lose their surrogate, the denominator keeps them
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return token_mean(s, ~selected * J, ~selected * dJ)


def eligible(s, *, low=1.0, high=1.0, cov_low=1.0, cov_high=5.0):
    """The tokens that the draw takes max(int(fraction · n), 1) of: not clipped, and cov_low < cov < cov_high."""
    A, r = group_advantage(s) + np.zeros(s.mask.shape), np.exp(s.logprob - s.old_logprob)
    cov = (A - A[s.mask].mean()) * (s.logprob - s.logprob[s.mask].mean())
    clips = np.clip(r, 1 - low, 1 + high) * A < r * A
    return s.mask & ~clips & (cov_low < cov) & (cov < cov_high)


@cases({}, {"mu": 0.3}, {"mu": 1.0, "low": 0.1, "high": 0.4}, {"mu": np.inf})
def clip_b(s, *, mu=2.5, low=0.2, high=0.2):
    # drop A < 0 with S - mean < -μ std, S = p (H + log p) of the old policy
    S = np.exp(s.old_logprob) * (s.old_entropy + s.old_logprob)
    keep = (group_advantage(s) >= 0) | (S - S[s.mask].mean() >= -mu * S[s.mask].std())
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return token_mean(s, keep * J, keep * dJ)


@cases({}, {"mu": 0.3, "fraction": 0.1}, {"mu": 0.0, "fraction": 1.0, "low": 0.1, "high": 0.4}, {"mu": np.inf})
def clip_v(s, *, mu=2.0, fraction=1e-4, low=0.2, high=0.2):
    # D = E[S] - S of the current policy; of the tokens with A < 0 and D > μ std, the k of largest D are dropped
    A = group_advantage(s) + np.zeros(s.mask.shape)
    D = s.entropy_drift - np.exp(s.logprob) * (s.entropy + s.logprob)
    beyond = s.mask & (A < 0) & (mu * D[s.mask].std() < D)
    keep, k = np.ones(s.mask.shape, bool), max(1, int(fraction * s.mask.sum()))
    keep.flat[np.argsort(np.where(beyond, -D, np.inf), axis=None, kind="stable")[: min(k, beyond.sum())]] = False
    J, dJ = clipped(*ratio(s), A, low, high)
    return token_mean(s, keep * J, keep * dJ)


@cases({}, {"fraction": 0.1}, {"fraction": 0.5, "coef": 0.3}, {"fraction": 1.0, "coef": 2.0})
def kl_cov(s, *, fraction=2e-3, coef=1.0):
    # cov_t = (A_t - mean A)(lp_t - mean lp), the means over all tokens of the batch
    A = group_advantage(s) + np.zeros(s.mask.shape)
    cov = (A - A[s.mask].mean()) * (s.logprob - s.logprob[s.mask].mean())

    # the k tokens of largest covariance
    k = max(1, int(fraction * s.mask.sum()))
    top = np.zeros_like(s.mask)
    top.flat[np.argsort(np.where(s.mask, -cov, np.inf), axis=None, kind="stable")[:k]] = True

    # r A without any clip, and - coef |lp - lp_old| on the top k, flat where the difference is rounding
    x = s.logprob - s.old_logprob
    J = np.exp(x) * A - coef * top * np.abs(x)
    return token_mean(s, J, np.exp(x) * A - coef * top * np.sign(x) * (np.abs(x) > 1e-5))


@cases(
    *crossed(
        [
            {},
            {"fraction": 0.1, "coef": 0.3},
            {"fraction": 0.9, "low_entropy": 0.5, "strong": 3.0, "weak": 0.1, "beta": 0.2},
        ],
        entropy=("old", "current"),
    )
)
def sent(s, *, entropy="current", fraction=2e-4, low_entropy=0.8, strong=2.0, weak=0.5, coef=1.0, beta=0.0):
    # the calm tokens: entropy at most the k-th smallest, k = int(low_entropy n)
    H = s.old_entropy if entropy == "old" else s.entropy
    threshold = np.sort(H[s.mask])[max(1, int(low_entropy * s.mask.sum())) - 1]
    calm = np.flatnonzero(s.mask & (threshold >= H))

    # cov_t = (A_t - mean A)(lp_t - mean lp), the means over these tokens
    A = group_advantage(s) + np.zeros(s.mask.shape)
    a, lp = A.flat[calm], s.logprob.flat[calm]
    cov = (a - a.mean()) * (lp - lp.mean())

    # the j of largest covariance pay strong · coef |lp - lp_old|, the j of smallest weak · coef
    j, order, price = max(1, int(fraction * len(calm))), np.argsort(cov, kind="stable"), np.zeros(s.mask.shape)
    price.flat[calm[order[-j:]]] = strong * coef
    price.flat[calm[order[:j]]] = weak * coef

    # r A without any clip, less the price, flat where the difference is rounding, less β k3
    (r, dr), x, (k, dk) = ratio(s), s.logprob - s.old_logprob, k3(s)
    dJ = dr * A - price * np.sign(x) * (np.abs(x) > 1e-5) - beta * dk
    return token_mean(s, r * A - price * np.abs(x) - beta * k, dJ)


@cases(
    *crossed(
        [{}, {"quantile": 0.3, "attenuation": 0.9}, {"quantile": 1.0, "low": 0.1, "high": 0.4}],
        curve=("constant", "chord"),
    )
)
def egspo(s, *, quantile=0.8, attenuation=0.5, curve="constant", low=0.2, high=0.28):
    # w = 1 where the entropy reaches the batch's quantile, attenuated below it: by a constant, or by sg[4 p (1 - p)] of
    # it, largest where the policy is undecided about the token, p = exp(lp)
    p = np.exp(s.logprob)
    attenuated = attenuation * (4 * p * (1 - p) if curve == "chord" else 1)
    w = np.where(s.old_entropy >= nearest_rank(s.old_entropy[s.mask], quantile), 1.0, attenuated)
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return token_mean(s, w * J, w * dJ)


@cases(
    *crossed(
        [
            {},
            {"fraction": 0.5, "beta": 0.3},
            {"fraction": 0.01, "low": 0.1, "high": 0.4},
            {"dual": 1.5, "fraction": 0.6},
            {"denominator": "kept", "beta": 0.3},
        ],
        entropy=("old", "current"),
    )
)
def forking_tokens(s, *, entropy="old", fraction=0.2, low=0.2, high=0.28, dual=None, beta=0.0, denominator="all"):
    # policy gradient only on the ⌈fraction n⌉ tokens of highest entropy; the authors' code divides by their number, not
    # by that of all tokens
    H = s.old_entropy if entropy == "old" else s.entropy
    forking = s.mask & (np.sort(H[s.mask])[-max(1, int(fraction * s.mask.sum() + 0.9999))] <= H)
    w = forking * (s.mask.sum() / forking.sum() if denominator == "kept" else 1)

    # - β k3 on every token
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high, dual)
    k, dk = k3(s)
    return token_mean(s, w * J - beta * k, w * dJ - beta * dk)


@cases(
    *crossed(
        [{"prob": 0.05}, {"prob": 0.3, "quantile": 0.5, "low": 0.1}, {"prob": 1.0, "quantile": 1.0, "high": 0.5}, {}],
        policy=("current", "old"),
    )
)
def stapo(s, *, policy="current", prob=0.002, quantile=0.75, low=0.2, high=0.28):
    lp, H = (s.logprob, s.entropy) if policy == "current" else (s.old_logprob, s.old_entropy)

    # spurious: rare tokens of praised responses whose entropy is below the quantile of such tokens
    A = group_advantage(s)
    spurious = s.mask & (A > 0) & (np.exp(lp) < prob)
    if spurious.any():
        spurious &= nearest_rank(H[spurious], quantile) > H

    # mean over the tokens that remain: the spurious leave the denominator too
    keep = s.mask & ~spurious
    return loss(keep / keep.sum(), *clipped(*ratio(s), A, low, high))


@cases(
    {},
    {"dual": 10.0, "high": 0.28, "least": 0.8, "safety": 3.0, "low": 0.1},
    {"decay": 1.0, "least": 0.0, "most": 100.0},
    {"decay": 0.5},
)
def fipo(s, *, decay=32.0, least=1.0, most=1.2, safety=4.0, dual=None, low=0.2, high=0.2):
    A, (r, dr) = group_advantage(s), ratio(s)

    # F_t = d_t + γ F_{t+1}, from the end; γ halves in `decay` tokens
    F = np.where(s.mask & (r <= (np.inf if dual is None else dual)), np.log(r), 0)
    for t in reversed(range(F.shape[1] - 1)):
        F[:, t] += 0.5 ** (1 / decay) * F[:, t + 1]
    f = np.clip(np.exp(F), least, most)
    f = np.where((A < 0) & (r > safety), np.clip(f, 0.8, 1.0), f)

    # sg[f] times the clipped surrogate
    J, dJ = clipped(r, dr, A, low, high, dual)
    return token_mean(s, f * J, f * dJ)


@cases(
    {}, {"beta": 0.0}, {"beta": -2.0}, {"beta": np.inf}, {"beta": -np.inf}, {"eta": 0.0}, {"eta": 0.3, "beta": 0.1},
    {"kl": 0.0}, {"kl": 0.3, "low": 0.1, "high": 0.4},
)  # fmt: skip
def nthr(s, *, beta=1.0, eta=None, low=0.2, high=0.2, kl=1e-4):
    # The wrong rollouts' tokens (R <= mean_g) that help the correct ones, s_jk > τ, keep the part η of A:
    # τ = β min_i sbar_i, sbar_i the mean influence of a correct rollout's tokens; η = 2 |1/2 - p| with p the group's
    # share of correct rollouts
    A = group_advantage(s) + np.zeros(s.mask.shape)
    for rows in groups(s):
        correct = rows[A[rows].max(1) > 0]
        if len(correct):
            tau = beta * min(s.influence[i, s.mask[i]].mean() for i in correct)
            part = 2 * abs(0.5 - len(correct) / len(rows)) if eta is None else eta
            for i in np.setdiff1d(rows, correct):
                A[i, s.influence[i] > tau] *= part

    J, dJ = clipped(*ratio(s), A, low, high)
    k, dk = k3(s)
    return sequence_mean(s, J - kl * k, dJ - kl * dk)


@cases({}, {"p": -0.5}, {"p": 0.0}, {"mask": False}, {"p": 0.9, "mask": False}, {"low": 0.1, "high": 0.4})
def thr(s, *, p=0.1, mask=True, low=0.2, high=0.2):
    # A_it <- A_it 1[|THR| > τ] (1 + p sign THR), THR = +s on the tokens of the correct rollouts (R > mean_g), else -s;
    # τ = min_i sbar_i, sbar_i the mean influence s of a correct rollout's tokens
    A = group_advantage(s) + np.zeros(s.mask.shape)
    for rows in groups(s):
        correct = rows[A[rows].max(1) > 0]
        if len(correct):
            tau = min(s.influence[i, s.mask[i]].mean() for i in correct)
            THR = np.where(np.isin(rows, correct)[:, None], 1, -1) * s.influence[rows]
            A[rows] *= (1 + p * np.sign(THR)) * (np.abs(THR) > tau if mask else 1)
    return sequence_mean(s, *clipped(*ratio(s), A, low, high))


@cases({}, {"delta": 0.05}, {"delta": 0.01, "anchor": "rollout", "low": 0.1, "high": 0.4}, {"delta": 0.05, "beta": 0.3})
def opsm(s, *, delta=0.5, anchor="old", low=0.2, high=0.2, beta=0.0):
    # keep_i = 0 where A_i < 0 and the response was likelier before by more than delta nats a token
    A, before = group_advantage(s), s.old_logprob if anchor == "old" else s.rollout_logprob
    far = response_mean(s, np.clip(before - s.logprob, -20, 20)) > delta
    keep = ~((A < 0) & far)

    # - beta r k3(y), y = lp_ref - lp: the derivative of r k3 is r (e^y - 1 - y) + r (1 - e^y) = -r y
    (r, dr), y = ratio(s), np.clip(s.ref_logprob - s.logprob, -20, 20)
    J, dJ = clipped(r, dr, A, low, high)
    return sequence_mean(s, keep * J - beta * r * (np.exp(y) - 1 - y), keep * dJ + beta * r * y)


@cases()
def s_grpo(s, *, selected, low=0.2, high=0.2):
    """`selected` [N, T] bool: the tokens that the random draw kept (its law is `kept`, below)."""
    # mean over the kept tokens of a response, then over the responses; one that kept none counts with 0
    share = selected / (s.mask.any(1).sum() * np.maximum(selected.sum(1, keepdims=True), 1))
    return loss(share, *clipped(*ratio(s), group_advantage(s), low, high))


def kept(mask, uniform, *, fraction=0.5, always=0):
    """Each token with probability `fraction`; `uniform` [n] holds the draws of the true tokens, row after row."""
    u = np.ones(mask.shape)
    u[mask] = uniform
    return mask & ((u < fraction) | (mask.cumsum(1) <= always))


@cases(
    *crossed(
        [
            {},
            {"beta": 0.3},
            {"beta": 0.3, "weight_prob": "old", "low": 0.1, "high": 0.4},
            {"shape": "outside", "beta": 0.3},
            {"alpha": 1.5, "tau": -4.0, "mu": 0.4, "lower": 0.6, "upper": 1.2},
        ],
        weight_placement=("advantage", "ratio"),
        kl_weighting=("none", "inside", "scale"),
    )
)
def tr_grpo(
    s, *, alpha=2.0, tau=9.0, mu=0.25, lower=1.0, upper=1.4, weight_placement="advantage", kl_weighting="none",
    beta=0.0, weight_prob="current", shape="inside", low=0.2, high=0.2,
):  # fmt: skip
    # w = clip(α σ(τ (p - μ)), lower, upper), without gradient: grows with the token's probability where τ > 0; a third
    # reading takes μ out of the sigmoid
    p = np.exp(s.logprob if weight_prob == "current" else s.old_logprob)
    w = alpha / (1 + np.exp(-tau * (p - mu))) if shape == "inside" else alpha * (1 / (1 + np.exp(-tau * p)) - mu)
    w = np.clip(w, lower, upper)

    # w multiplies the advantage, or the ratio inside min and clip
    A, (r, dr) = group_advantage(s), ratio(s)
    if weight_placement == "advantage":
        J, dJ = clipped(r, dr, w * A, low, high)
    else:
        J, dJ = clipped(w * r, w * dr, A, low, high)

    # - β KL with k3 = u - log u - 1, ∂k3/∂lp = 1 - u: of u = π_ref/π, of u = w π_ref/π, or the first scaled by w
    u = np.exp(s.ref_logprob - s.logprob) * (w if kl_weighting == "inside" else 1)
    scale = beta * (w if kl_weighting == "scale" else 1)
    return sequence_mean(s, J - scale * (u - np.log(u) - 1), dJ - scale * (1 - u))


@cases({}, {"alpha": 3.0}, {"alpha": 0.0}, {"alpha": 1.0}, {"low": 0.1, "high": 0.4})
def tw_grpo(s, *, alpha=1.7, low=0.2, high=0.28):
    # w_t = 1 + (α - 1) (d_t - min d) / (max d - min d + 1e-8) over the positions where a rollout of the group is alive
    w = np.ones(s.mask.shape)
    for rows in groups(s):
        d = s.divergence[rows][s.mask[rows]]
        w[rows] = 1 + (alpha - 1) * (s.divergence[rows] - d.min()) / (np.ptp(d) + 1e-8)

    # w min(r A, clip(r) A), with 1e-4 beside the deviation
    J, dJ = clipped(*ratio(s), group_advantage(s, eps=1e-4), low, high)
    return token_mean(s, w * J, w * dJ)

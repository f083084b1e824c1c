"""Methods whose ratio or clip is special: loss and hand-derived gradient."""

import numpy as np

from .prelude import (
    cases,
    clipped,
    crossed,
    group_advantage,
    groups,
    k3,
    lengths,
    likelihood,
    nearest_rank,
    ratio,
    response_mean,
    sequence_mean,
    sequence_ratio,
    sequence_sum,
    token_mean,
)


@cases({}, {"low": 0.1, "high": 0.4}, {"beta": 0.3}, {"beta": 0.05, "low": 0.3, "high": 0.3})
def grpo(s, *, low=0.2, high=0.2, beta=0.0):
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    k, dk = k3(s)
    return sequence_mean(s, J - beta * k, dJ - beta * dk)


@cases({}, {"low": 0.1, "high": 0.4}, {"beta": 0.3})
def igrpo(s, *, low=0.2, high=0.2, beta=0.0):
    # drafts change what is asked, not what is learnt from the answers
    return grpo(s, low=low, high=high, beta=beta)


@cases({}, {"low": 0.1, "high": 0.4}, {"dual": 3.0}, {"low": 0.3, "dual": 1.5})
def dapo(s, *, low=0.2, high=0.28, dual=10.0):
    return token_mean(s, *clipped(*ratio(s), group_advantage(s), low, high, dual))


@cases({}, {"delta": 0.01}, {"delta": 0.0, "cap": 1.005, "low": 0.1, "high": 0.4}, {"delta": np.inf})
def vaco(s, *, delta=2.0, cap=2.0, low=0.2, high=0.272):
    rho, A = np.exp(s.old_logprob - s.rollout_logprob), group_advantage(s)
    kept = (response_mean(s, np.abs(rho - 1)) <= delta) | (np.sign(rho - 1) * np.sign(A) <= 0)
    J, dJ = clipped(*ratio(s), A, low, high)
    w = kept * np.minimum(rho, cap)
    return token_mean(s, w * J, w * dJ)


@cases({}, {"low": 0.1, "high": 0.4, "dual": 2.0})
def decoupled(s, *, low=0.2, high=0.2, dual=None):
    # the proximal policy lies a share (g - 1) / g of the way from the old to the current one, which does not move it
    share = np.array([[(g - 1) / g if g > 1 else 0.0 for g in row] for row in s.staleness])
    r = np.exp((1 - share) * (s.logprob - s.old_logprob))
    return token_mean(s, *clipped(r, r, group_advantage(s), low, high, dual))


@cases({}, {"low": 0.1, "high": 0.4}, {"length": 64}, {"length": 5, "high": 0.3})
def dr_grpo(s, *, low=0.2, high=0.2, length=None):
    # A_i = R_i - mean_g: no division by the standard deviation
    J, dJ = clipped(*ratio(s), group_advantage(s, std=False), low, high)

    # the sum over the tokens of a response is divided by a constant, the longest response (allowed)
    constant = lengths(s).max() if length is None else length
    return sequence_sum(s, J / constant, dJ / constant)


@cases({}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 1e-4})
def gspo(s, *, low=3e-4, high=4e-4):
    # min(s A, clip(s, 1 - low, 1 + high) A), s_i = exp(mean_t(lp - lp_old)): one ratio for the response
    return sequence_mean(s, *clipped(*sequence_ratio(s), group_advantage(s), low, high))


@cases({}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 1e-4})
def gspo_token(s, *, low=3e-4, high=4e-4):
    # s_it = sg[s_i] exp(lp - sg[lp]): worth s_i = exp(mean_t(lp - lp_old)), and ∂s_it/∂lp_it = s_i
    w, dw = sequence_ratio(s)
    return sequence_mean(s, *clipped(w, dw, group_advantage(s), low, high))


@cases({}, {"low": 0.01, "high": 0.02}, {"low": 3e-4, "high": 4e-4})
def tepo_v1(s, *, low=0.2, high=0.2):
    # s_it = sg[s_i] exp(lp - sg[lp]): worth s_i = exp(mean_t(lp - lp_old)), and ∂s_it/∂lp_it = s_i
    return token_mean(s, *clipped(*sequence_ratio(s), group_advantage(s), low, high))


@cases({}, {"low": 3e-4, "high": 4e-4}, {"low": 0.0, "high": 0.1})
def luspo(s, *, low=0.2, high=0.2):
    # |o_i| min(s A, clip(s) A): as a sum over tokens; with ∂s_i/∂lp_it = s_i / |o_i| the length leaves the gradient
    return sequence_sum(s, *clipped(*sequence_ratio(s), group_advantage(s), low, high))


@cases({}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 5.0})
def gmpo(s, *, low=0.4, high=0.4):
    # y_t = sign(A) min(sign(A) x, sign(A) clip(x, -low, high)), x = lp - lp_old: log-ratios clipped only against A
    A, x = group_advantage(s), s.logprob - s.old_logprob
    y = np.where(A > 0, np.minimum(x, high), np.maximum(x, -low))
    dy = np.where(A > 0, x <= high, x >= -low)

    # w_i = exp(mean_t y): the geometric mean of the clipped ratios; |o_i| ∂w_i/∂lp_it = w_i [not clipped]
    w = np.exp(response_mean(s, y))
    return sequence_mean(s, A * w, A * w * dy)


@cases({}, {"tau_pos": 0.3, "tau_neg": 2.0})
def sapo(s, *, tau_pos=1.0, tau_neg=1.05):
    # A f(r), f(r) = (4/τ) σ(τ (r - 1)), τ by the sign of A; f' = 4 σ (1 - σ) is 1 at r = 1
    A, (r, dr) = group_advantage(s), ratio(s)
    tau = np.where(A > 0, tau_pos, tau_neg)
    sigma = 1 / (1 + np.exp(-tau * (r - 1)))
    return sequence_mean(s, A * 4 / tau * sigma, A * 4 * sigma * (1 - sigma) * dr)


@cases({}, {"low": 0.2, "high": 0.2}, {"high": 2.0, "absolute": True})
def cispo(s, *, low=1.0, high=0.28, absolute=False):
    # sg[clip(r, 1 - low, 1 + high)] A lp: every token keeps a gradient, of bounded weight
    w = np.clip(ratio(s)[0], 1 - low, high if absolute else 1 + high)
    return token_mean(s, *likelihood(s, w * group_advantage(s)))


@cases(
    *crossed(
        [{}, {"quantile": 0.5, "dual": 1.5}, {"low_eps": 0.0, "high_eps": 1.0, "quantile": 0.0}],
        entropy=("old", "current"),
    )
)
def aspo(s, *, entropy="old", low_eps=0.2, high_eps=0.4, quantile=0.8, dual=3.0):
    # high-entropy tokens of a response: above its own quantile
    H = s.old_entropy if entropy == "old" else s.entropy
    e = np.zeros(s.mask.shape)
    for row, on in enumerate(s.mask):
        if on.any():
            e[row] = np.where(H[row] > nearest_rank(H[row, on], quantile), high_eps, low_eps)
    A, (r, dr) = group_advantage(s), ratio(s)

    # A > 0: the ratio is turned over: (r^ / sg[r^]) A / sg[r^] with r^ = min(r, 1 + e), still where r is clipped;
    # a soft dual clip: beyond dual the weight stays dual and so does the gradient
    r_up = np.minimum(r, 1 + e)
    far = 1 / r_up > dual
    J_up = np.where(far, dual * A, A / r_up)
    dJ_up = np.where(far, dual * A, A / r_up**2 * np.where(r <= 1 + e, dr, 0))

    # A < 0: max(r, 1 - e) A, still where it is clipped, and softly clipped at dual
    r_down = np.maximum(r, 1 - e)
    J_down = np.where(r_down > dual, dual * A, r_down * A)
    dJ_down = np.where(r_down > dual, dual * A, np.where(r >= 1 - e, dr, 0) * A)
    return token_mean(s, np.where(A > 0, J_up, J_down), np.where(A > 0, dJ_up, dJ_down))


@cases({}, {"low": 0.1, "high": 0.28, "beta1": 0.5, "beta2": 0.25}, {"beta1": 0.0, "beta2": 2.0}, {"dual": 1.5})
def ce_gppo(s, *, low=0.2, high=0.2, beta1=0.75, beta2=1.0, dual=None):
    A, (r, dr) = group_advantage(s), ratio(s)

    # r A inside the clip and on its harmless side; a clipped token keeps a gradient of constant size:
    # A < 0, r < 1 - low: beta1 (1 - low) / sg[r] · r A, and A > 0, r > 1 + high: beta2 (1 + high) / sg[r] · r A
    below, above = (A < 0) & (r < 1 - low), (A > 0) & (r > 1 + high)
    w = np.select([below, above], [beta1 * (1 - low) / r, beta2 * (1 + high) / r], 1.0)
    J, dJ = w * r * A, w * dr * A

    # the authors' code: A < 0: max(J, dual A), flat where that binds
    if dual is not None:
        cut = (A < 0) & (dual * A > J)
        J, dJ = np.where(cut, dual * A, J), np.where(cut, 0, dJ)
    return token_mean(s, J, dJ)


@cases(*crossed([{}, {"threshold": 0.02}, {"cap": 1.05}], anchor=("rollout", "old")))
def dppo_tv(s, *, anchor="rollout", threshold=0.15, cap=20.0):
    # the trust region is about the probabilities p now and q of the policy that sampled, not their ratio
    before = s.rollout_logprob if anchor == "rollout" else s.old_logprob
    A, p, q = group_advantage(s), np.exp(s.logprob), np.exp(before)

    # p may rise by the threshold for A > 0, fall by it for A <= 0
    inside = np.where(A > 0, p - q <= threshold, p - q >= -threshold)

    # sg[min(r, cap)] A lp inside, nothing outside; the denominator keeps every token
    w = inside * np.minimum(ratio(s, before)[0], cap)
    return token_mean(s, *likelihood(s, w * A))


@cases(*crossed([{}, {"threshold": 0.001}, {"cap": 1.05}, {"cap": 1.0}], anchor=("rollout", "old")))
def dppo_kl(s, *, anchor="rollout", threshold=0.05, cap=20.0):
    # the trust region is about the probabilities p now and q of the policy that sampled, not their ratio
    before = s.rollout_logprob if anchor == "rollout" else s.old_logprob
    A, p, q = group_advantage(s), np.exp(s.logprob), np.exp(before)

    # KL(Bernoulli(q) | Bernoulli(p)) within the threshold, or p on the harmless side of q
    kl = q * (before - s.logprob) + (1 - q) * np.log((1 - q + 1e-8) / (1 - p + 1e-8))
    inside = (kl <= threshold) | np.where(A > 0, p <= q, p >= q)

    # sg[min(r, cap)] A lp inside, nothing outside; the denominator keeps every token
    w = inside * np.minimum(ratio(s, before)[0], cap)
    return token_mean(s, *likelihood(s, w * A))


@cases({}, {"low": 0.02, "high": 0.01}, {"kl": 0.5}, {"kl": 0.0, "low": 0.0}, {"low": 0.02, "high": 0.01, "both": True})
def prime_rl(s, *, low=0.2, high=0.2, kl=1e-3, both=False):
    # keep q A - kl (log q)^2, A_i = R_i - mean_g, q = π / π_rollout
    A, moved = group_advantage(s, std=False), np.exp(s.logprob) - np.exp(s.rollout_logprob)
    keep = ((A <= 0) & (not both) | (moved <= high)) & ((A > 0) & (not both) | (moved >= -low))
    x = np.clip(s.logprob - s.rollout_logprob, -20, 20)
    return token_mean(s, keep * np.exp(x) * A - kl * x**2, keep * np.exp(x) * A - 2 * kl * x)


@cases({}, {"low": 0.5, "high": 3.0}, {"low": 1.0, "high": np.inf})
def rollout_is(s, *, low=0.2, high=0.2):
    # sg[q 1(1 - low < q < 1 + high)] A lp, q = π / π_rollout
    q, _ = ratio(s, s.rollout_logprob)
    return token_mean(s, *likelihood(s, np.where((q > 1 - low) & (q < 1 + high), q, 0) * group_advantage(s)))


@cases({}, {"beta": 1.0}, {"beta": 0.0})
def dro(s, *, beta=0.05):
    # A lp - beta/2 (lp - lp_old)^2
    A, x = group_advantage(s), np.clip(s.logprob - s.old_logprob, -20, 20)
    return token_mean(s, A * s.logprob - beta / 2 * x**2, A - beta * x)


@cases({}, {"budget": 0.3, "low": 0.05, "high": 0.05}, {"budget": 1e-3, "low": 0.0, "high": 0.0}, {"budget": 9.0})
def m2po(s, *, budget=0.04, low=0.3, high=0.5):
    # squares of the tokens that are pushed on, from the smallest; the last that the budget holds if all after it are
    # cut to it is the bound
    A, (r, dr) = group_advantage(s), ratio(s)
    x = np.log(r)
    squares = sorted((x**2)[s.mask & (x * A > 0)])
    n, tau = len(squares), 20.0
    if n and sum(squares) / n > budget:
        tau = 0.0
        for k in range(n):
            if (sum(squares[: k + 1]) + (n - k - 1) * squares[k]) / n >= budget:
                break
            tau = np.sqrt(squares[k] - 1e-12)

    # bounds e^∓τ, at least low and high
    return token_mean(s, *clipped(r, dr, A, max(1 - np.exp(-tau), low), max(np.exp(tau) - 1, high)))


@cases({}, {"threshold": 5e-5}, {"threshold": 0.0}, {"threshold": 1e-5, "low": 0.1, "high": 0.4})
def m2po_rollout(s, *, threshold=0.04, low=0.2, high=0.2):
    # the largest squares are dropped until the mean of the others is below the threshold, or one is left
    keep = s.mask.copy()
    squares = (s.rollout_logprob - s.old_logprob) ** 2
    while keep.sum() > 1 and squares[keep].mean() >= threshold:
        keep[np.unravel_index(np.argmax(np.where(keep, squares, -1)), keep.shape)] = False
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return token_mean(s, keep * J, keep * dJ)


@cases({}, {"threshold": 0.0}, {"level": "token"}, {"signal": "advantage"}, {"level": "token", "signal": "advantage"})
def topr(s, *, level="sequence", signal="outcome", threshold=0.5):
    # A_i = ±1 by the outcome, without a baseline; or R_i - mean_g
    outcome = np.where(s.reward > threshold, 1.0, -1.0)[:, None]
    A = outcome if signal == "outcome" else group_advantage(s, std=False)

    # W = π / π_old of the whole response, a product of ratios, or of the token; its logarithm kept within ±20
    x = s.mask * (s.logprob - s.old_logprob)
    W = np.exp(np.clip(x.sum(1, keepdims=True) if level == "sequence" else x, -20, 20))

    # sg[a] A lp, a = 1 for A >= 0 and min(W, 1) for A < 0: what the policy already shuns is pushed no further
    return sequence_sum(s, *likelihood(s, np.where(A >= 0, 1.0, np.minimum(W, 1)) * A))


@cases(
    {},
    {"k_pos": 0.5, "lambda_pos": 0.1, "k_neg": 1.0, "lambda_neg": 0.3},
    {"k_pos": 0.0, "lambda_pos": 0.0, "k_neg": 1.0, "lambda_neg": 0.0},
)
def vespo(s, *, k_pos=2.0, lambda_pos=3.0, k_neg=3.0, lambda_neg=2.0):
    # W_i = Π_t r_it, the product over the response: each log-ratio within ±20, their sum within [log 1e-8, 20]
    log_W = (s.mask * np.clip(s.logprob - s.old_logprob, -20, 20)).sum(1, keepdims=True)
    log_W = np.clip(log_W, np.log(1e-8), 20)

    # φ(W) = e^λ W^k e^(-λ W): one at W = 1, largest at W = k / λ, with constants of its own for each sign of A
    A = group_advantage(s)
    k = np.where(A >= 0, k_pos, k_neg)
    rate = np.maximum(np.where(A >= 0, lambda_pos, lambda_neg), 1e-4)
    phi = np.exp(rate + k * log_W - rate * np.exp(log_W))

    # sg[φ(W)] A lp: every token keeps a gradient
    return token_mean(s, *likelihood(s, phi * A))


WIDE = {"low": 0.1, "high": 0.4, "sequence_low": 0.1, "sequence_high": 0.2}


@cases(*crossed([{}, WIDE], mixing=("average", "entropy")))
def dhpo(s, *, mixing="average", low=0.2, high=0.28, sequence_low=3e-4, sequence_high=4e-4):
    # a_t, the share of the token ratio: 1/2, or the token's entropy over the largest of its response
    a = np.full(s.mask.shape, 0.5)
    if mixing == "entropy":
        for row, on in enumerate(s.mask):
            top = s.old_entropy[row, on].max(initial=0)
            if top > 0:
                a[row] = s.old_entropy[row] / top

    # a r + (1 - a) s_it, s_it = sg[s_i] exp(lp - sg[lp]): worth s_i, and ∂s_it/∂lp_it = s_i
    A, (r, dr), (w, dw) = group_advantage(s), ratio(s), sequence_ratio(s)
    # a min(r A, clip(r) A) + (1 - a) min(s A, clip(s) A): each branch is clipped for itself
    (J_r, dJ_r), (J_w, dJ_w) = clipped(r, dr, A, low, high), clipped(w, dw, A, sequence_low, sequence_high)
    return sequence_mean(s, a * J_r + (1 - a) * J_w, a * dJ_r + (1 - a) * dJ_w)


@cases({}, {"low": 0.05, "dual": 1.5})
def up(s, *, low=0.2, dual=None):
    # A > 0: π / sg[π] A, of value A and slope A; else the clipped ratio
    A = group_advantage(s)
    J, dJ = clipped(*ratio(s), A, low, np.inf, dual)
    return token_mean(s, np.where(A > 0, A, J), np.where(A > 0, A, dJ))


@cases({}, {"first": 0.0}, {"first": 1.0, "low": 0.01, "high": 0.02}, {"first": -1.5, "low": 0.1, "high": 0.4})
def holder(s, *, first=2.0, low=0.2, high=0.2):
    # ρ = (mean r^p)^(1/p) at p = first, |o_i| ∂ρ/∂lp_t = ρ r_t^p / mean r^p; its limit exp(mean log r) at 0
    r, _ = ratio(s)
    if first == 0:
        return sequence_mean(s, *clipped(*sequence_ratio(s), group_advantage(s), low, high))
    mean = np.where(s.mask.any(1, keepdims=True), response_mean(s, r**first), 1)
    rho = mean ** (1 / first)
    return sequence_mean(s, *clipped(rho, rho * r**first / mean, group_advantage(s), low, high))


@cases({}, {"alpha": 1.0, "length": 64}, {"alpha": 0.0, "low": 0.1, "high": 0.4})
def delta_l(s, *, alpha=0.75, length=None, low=0.2, high=0.3):
    # w_i = |o_i|^-α over its mean over the responses; Σ_t w_i J / L, then the mean over the responses
    w = s.mask.any(1, keepdims=True) * lengths(s) ** -alpha
    w, L = w / w[s.mask.any(1)].mean(), length or s.mask.sum(1).max()
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return sequence_sum(s, w * J / L, w * dJ / L)


def _fitted(s, slope):
    """Of the rows of a group, the slope of its loss to each Σ_t lp, which the method holds fixed; L is their mean."""
    gradient = np.zeros(s.mask.shape)
    for rows in groups(s):
        new, old = ((s.mask * x)[rows].sum(1) for x in (s.logprob, s.old_logprob))
        # a mean over responses of n times each is the mean over groups of their sum, if all have n
        gradient[rows] = (len(rows) * slope(s.reward[rows], new, old) / s.mask.any(1).sum())[:, None]
    gradient = gradient * s.mask
    return (gradient * s.logprob).sum(), gradient


@cases({}, {"beta": 0.7})
def gvpo(s, *, beta=0.1):
    # 1/(n-1) Σ ½ (β (S_i - mean S) - (R_i - mean R))², the means fixed: slope β (...) / (n - 1)
    def slope(R, new, old):
        S = new - old
        return beta * (beta * (S - S.mean()) - (R - R.mean())) / max(1, len(R) - 1) * (len(R) > 1)

    return _fitted(s, slope)


@cases({}, {"eta": 0.3})
def target_po(s, *, eta=1.0):
    # -Σ q log p: slope p - q, p the softmax of Σ lp, q of Σ lp_old + z / η, z the reward's score with n
    def softmax(x):
        return np.exp(x - x.max()) / np.exp(x - x.max()).sum()

    def slope(R, new, old):
        z = (R - R.mean()) / R.std() if R.min() < R.max() else 0 * R
        return softmax(new) - softmax(old + z / eta)

    return _fitted(s, slope)


@cases({}, {"tau": 2.0})
def real(s, *, tau=0.5):
    gradient = s.mask * label_loss(s, tau)[1][:, None] / lengths(s)
    return (gradient * s.logprob).sum(), gradient  # the slopes are frozen


def label_loss(s, tau):
    """L, of which the method has the gradient, and ∂L/∂s [N]."""
    score = response_mean(s, np.clip(s.logprob - s.old_logprob, -20, 20))[:, 0]

    # L_g = log(1 + Σ_right e^(-s/τ)) + log(1 + Σ_wrong e^(s/τ)), of groups that have both
    L, dL = 0.0, np.zeros(len(s.reward))
    for rows in groups(s):
        R = s.reward[rows]
        if R.min() < R.max():
            right, wrong = rows[R.mean() < R], rows[R.mean() >= R]
            a, b = np.exp(-score[right] / tau), np.exp(score[wrong] / tau)
            L += np.log(1 + a.sum()) + np.log(1 + b.sum())
            dL[right], dL[wrong] = -a / tau / (1 + a.sum()), b / tau / (1 + b.sum())
    return L / len(groups(s)), dL / len(groups(s))

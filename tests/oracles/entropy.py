"""Methods that follow the entropy: loss and hand-derived gradients."""

import numpy as np

from .prelude import cases, clipped, crossed, group_advantage, groups, nearest_rank, ratio, sequence_ratio, token_mean


@cases(
    *crossed(
        [
            {},
            {"quantile": 0.5, "alpha": 0.4},
            {"quantile": 1.0, "beta": 0.3},
            {"quantile": 0.0, "dual": 3.0},
            {"alpha": 0.0},
            {"beta": 0.0},
            {"token_mean_advantage": False, "low": 0.1, "high": 0.3},
            {"fallback": "released"},
        ],
        entropy=("old", "current"),
        sign=("paper", "released"),
    )
)
def hapo(
    s, *, entropy="old", quantile=0.8, alpha=1.0, beta=1.0, token_mean_advantage=True, low=0.2, high=0.2, dual=10.0,
    sign="paper", fallback="tokens",
):  # fmt: skip
    # h = (log max(H, 1e-8) - q) / rms, q the nearest-rank quantile of log H; the root mean square about q drops out of
    # h^ in [-1, 1]: the positive over their maximum, the negative over |minimum| (the released code: over the minimum)
    h = np.log(np.maximum(s.old_entropy if entropy == "old" else s.entropy, 1e-8))
    h = h - nearest_rank(h[s.mask], quantile)
    top, bottom = h[s.mask].max() or 1, h[s.mask].min() or 1
    h = np.where(h > 0, h / top, h / (abs(bottom) if sign == "paper" else bottom))

    # (2) A_i = (R_i - mean) / (std + 1e-6) over the group's tokens: long responses count more; else as in GRPO
    A = group_advantage(s)
    for rows in groups(s):
        R, n = s.reward[rows], s.mask[rows].sum(1)
        mean = np.average(R, weights=n)
        std = np.sqrt(np.average((R - mean) ** 2, weights=n))
        by_tokens = (R - mean) / (std + 1e-6)
        seen = np.append(by_tokens, -mean / (std + 1e-6)) if fallback == "released" else by_tokens
        if token_mean_advantage and R.min() < R.max() and np.abs(seen).max() < 5:
            A[rows, 0] = by_tokens

    # (4) the lower bound widens where the policy is certain, the upper where it hesitates
    low = np.where(h <= 0, low * (1 - alpha * h), low)
    high = np.where(h > 0, high * (1 + alpha * h), high)

    # (3) A <- A (1 + β h^): for h^ > 0 outside the neutral zone of the ratio, for h^ <= 0 inside it
    r, dr = ratio(s)
    neutral = (1 - low / 2 < r) & (r < 1 + high / 2)
    A = np.where(neutral == (h <= 0), A * (1 + beta * h), A)
    return token_mean(s, *clipped(r, dr, A, low, high, dual))


def temperature(previous_entropy, entropy, *, base=1.0, quantile=0.8, tau=0.05, sign="paper"):
    """(1) T_t = T (1 + τ h^_t): h^ of the step's entropy [M], scaled by the previous rollout batch's entropies."""
    z = np.log(np.maximum(previous_entropy, 1e-8))
    q = nearest_rank(z, quantile)
    top, bottom = (z.max() - q) or np.inf, (z.min() - q) or np.inf  # a side never seen scores 0
    h = np.log(np.maximum(entropy, 1e-8)) - q
    h = np.where(h > 0, h / top, h / (abs(bottom) if sign == "paper" else bottom))
    return base * (1 + tau * np.clip(h, -1, 1))


@cases(
    *crossed(
        [{}, {"beta": 0.04, "low": 3e-4, "high": 4e-4}],
        decreasing=("delta", "analytic", "reference"),
        kl_target=("old", "reference"),
        estimator=("k3", "abs", "k1", "k2"),
    )
)
def tepo(s, *, low=0.2, high=0.2, beta=1.0, decreasing="delta", kl_target="old", estimator="k3"):
    # min(s A, clip(s) A) with s_it = sg[s_i] exp(lp - sg[lp]): worth s_i, and ∂s_it/∂lp_it = s_i
    A = group_advantage(s)
    J, dJ = clipped(*sequence_ratio(s), A, low, high)

    # M_it = 1[A_i > 0] 1[entropy decreasing at (i, t)]; a logit step moves H by -A (p (lp + H) - Σ p² (log p + H));
    # "reference": by the surprise of the sampled token alone
    falls = {
        "delta": s.entropy < s.old_entropy,
        "analytic": A * (np.exp(s.logprob) * (s.logprob + s.entropy) - s.entropy_drift) > 0,
        "reference": s.logprob > s.ref_logprob,
    }[decreasing]
    M = (A > 0) & falls

    # - β M KL. The sampler's policy is the one that the expectation is over: of r = π/π_old, or of r = π_ref/π
    x, sign = (s.logprob - s.old_logprob, 1) if kl_target == "old" else (s.ref_logprob - s.logprob, -1)
    KL, dKL = {
        "k3": (np.exp(x) - 1 - x, np.exp(x) - 1),
        "abs": (np.abs(x), np.sign(x) * (np.abs(x) > 1e-5)),
        "k1": (-x, -1),
        "k2": (x**2 / 2, x),
    }[estimator]
    return token_mean(s, J - beta * M * KL, dJ - beta * M * sign * dKL)


@cases(*crossed([{}, {"rho": np.inf}, {"rho": 0.9, "low": 0.1, "high": 0.3}], start=(0.0, 0.3), largest=(1.0,)))
def aer(s, *, rho=0.5, start=0.0, low=0.2, high=0.2, largest=0.005):
    """`start` is Λ before the first batch; `largest` matters to `aer_after`."""
    # d_i = max(0, 1 - acc_g / ρ), acc_g the group's mean reward within [0, 1]: the harder the prompt, the more entropy
    d = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        d[rows, 0] = max(0.0, 1 - np.clip(s.reward[rows].mean(), 0, 1) / rho)

    # + Λ d H: H has a gradient, Λ and d have none
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    _, dJ_dH = token_mean(s, start * d * s.entropy, start * d)
    return *token_mean(s, J + start * d * s.entropy, dJ), dJ_dH


def aer_after(Lambda, H0, H, *, tau=0.4, rule="sign", delta=1e-4, largest=0.005):
    """Λ after a batch of mean old entropy `H`, the very first batch's being `H0`: towards τ H0, within [0, largest]."""
    distance = tau * H0 - H
    return min(max(Lambda + delta * (np.sign(distance) if rule == "sign" else distance), 0.0), largest)


# The mean entropy of the batches is about 0.7: below 9, above 0.2.
@cases(
    *crossed([{}, {"target": 9.0}, {"target": 9.0, "low": 0.1, "high": 0.3}], start=(0.0, 0.003, 0.5), largest=(1.0,))
)
def skywork_entropy(
    s, *, controller="current", was_below=True, target=0.2, start=0.0, largest=0.005, low=0.2, high=0.2
):
    """`start` is α as the batches before left it; `was_below` is their gate, which controller="released" reads;
    `largest` matters to `skywork_after`."""
    # + c H with c = α 1[Hbar_old < target]: H has a gradient, c none; the authors' code: the batch before has opened or
    # closed the gate
    c = start * (was_below if controller == "released" else s.old_entropy[s.mask].mean() < target)
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    return *token_mean(s, J + c * s.entropy, dJ), token_mean(s, c * s.entropy, c)[1]


def skywork_after(alpha, Hbar, target=0.2, delta=1e-4, largest=0.005):
    """α after a batch whose tokens had the mean old entropy `Hbar` (released: mean -lp_old): up below the target, else
    down, in [0, largest]."""
    return min(max(alpha + (delta if Hbar < target else -delta), 0.0), largest)

"""Methods with several rewards, or with advantages that differ along a response: loss and hand-derived gradient."""

from collections import defaultdict
from fractions import Fraction
from math import asin, comb, exp, log2, sqrt

import numpy as np

from .prelude import (
    cases,
    clipped,
    crossed,
    group_advantage,
    groups,
    k3,
    likelihood,
    loss,
    ratio,
    sequence_mean,
    token_mean,
    whitened,
)


def _bits(x, y):
    return -sum(z / (x + y) * log2(z / (x + y)) for z in (x, y) if z)


def _fisher(a, b, c, d):
    # the probability, in whole numbers, of all tables with these margins that are no likelier than this one
    n, row, column = a + b + c + d, a + b, a + c
    ways = {k: comb(column, k) * comb(n - column, row - k) for k in range(row + 1)}
    return Fraction(sum(w for w in ways.values() if w <= ways[a]), comb(n, row))


@cases(
    {},
    {"alpha": 0.3, "beta": 2.0, "top": 0.5, "end": 1},
    {"alpha": 0.0, "threshold": 0.4, "low": 0.1, "high": 0.4},
    {"beta": 0.0},
)
def ktae(s, *, alpha=1.0, beta=1.0, top=1.0, threshold=0.0, end=None, low=0.2, high=0.2):
    # A_it = A_i + k_v, v the token's id: k_v = top (2 sigmoid((α F + β IG) x / (α + β)) - 1)
    A = group_advantage(s) + np.zeros(s.mask.shape)
    for rows in groups(s):
        texts = {+1: [], -1: []}
        for i in rows:
            texts[1 if s.reward[i] > threshold else -1].append(s.token_ids[i, s.mask[i]].tolist())
        if not (texts[1] and texts[-1]):
            continue
        size = {y: sum(map(len, texts[y])) for y in texts}
        for v in {v for y in texts for text in texts[y] for v in text} - {end}:
            a, b = (sum(v in text for text in texts[y]) for y in (1, -1))
            c, d = len(texts[1]) - a, len(texts[-1]) - b
            p, n = _fisher(a, b, c, d), a + b + c + d
            F = exp(-2 * p) if p < 1 else 0
            IG = _bits(a + c, b + d) - (a + b) / n * _bits(a, b) - (c + d and (c + d) / n * _bits(c, d))
            tf = {}
            for y in texts:
                q = sum(text.count(v) for text in texts[y]) / size[y]
                tf[y] = 3 * q / (q + 2 * (0.5 + 0.5 * size[y] / ((size[1] + size[-1]) / 2)))
            x = asin(sqrt(a / (a + c))) - asin(sqrt(b / (b + d)))
            x += tf[1] / (tf[-1] + 1e-5) - tf[-1] / (tf[1] + 1e-5)
            z = (alpha * F + beta * IG) * x / (alpha + beta)
            k = top * (2 / (1 + exp(-z)) - 1) if z > -700 else -top
            for i in rows:
                A[i] += k * (s.token_ids[i] == v)
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases({}, {"strength": 3.0, "cost": 0.5, "most": 1.1}, {"cost": 0.0, "most": np.inf})
def gtpo_conflict(s, *, strength=2.0, cost=0.1, most=0.7):
    # conflict: a place and an id that right and wrong responses share, in a run from the first or from the last token
    base, c = group_advantage(s, std=False)[:, 0], np.zeros(s.mask.shape)
    for rows in groups(s):
        texts = {i: s.token_ids[i, s.mask[i]].tolist() for i in rows}
        for i in rows:
            runs = np.zeros((2, len(texts[i])), int)
            for run, step in ((0, 1), (1, -1)):
                for t, v in enumerate(texts[i][::step]):
                    signs = {np.sign(base[j]) for j in rows if texts[j][::step][t : t + 1] == [v]}
                    if base[i] == 0 or not {1, -1} <= signs:
                        break
                    runs[run, t] = 1
            runs[1] = runs[1, ::-1]
            w = np.where(base[i] < 0, ~runs.any(0), strength ** runs.sum(0))
            H = s.old_entropy[i, s.mask[i]].mean()
            c[i, s.mask[i]] = w * (base[i] - cost * H) * (most >= H) / max(1, runs.any(0).sum())

    # A lp, without a ratio
    return sequence_mean(s, *likelihood(s, c))


@cases(
    *crossed(
        [{}, {"weights": (1.0, 0.5, -2.0)}, {"beta": 0.1, "low": 0.1, "high": 0.4}], form=("trl", "verl", "nemo_rl")
    )
)
def gdpo(s, *, form="trl", weights=(), beta=0.0, low=0.2, high=0.2):
    given = ~np.isnan(s.rewards)
    alive = s.mask.any(1) & given.any(1)  # a rollout without response tokens or rewards counts nowhere
    eps = 1e-4 if form == "trl" else 1e-6

    # u_i = Σ_k w_k (R_ik - mean) / (std + eps), among the rollouts of the group that have the reward
    u = np.zeros(len(s.group))
    for k, w in enumerate(weights or [1.0] * s.rewards.shape[1]):
        for g in np.unique(s.group[alive]):
            rows = np.flatnonzero(alive & (s.group == g) & given[:, k])
            R = s.rewards[rows, k]
            for i in range(len(R) if len(R) > 1 and R.min() < R.max() else 0):
                mean, std = R.mean(), R.std(ddof=1) + eps
                if form == "nemo_rl":  # of the others, and not divided where they are all equal
                    others = np.delete(R, i)
                    mean, std = others.mean(), others.std(ddof=1) + eps if others.min() < others.max() else 1
                u[rows[i]] += w * (R[i] - mean) / std

    # over the batch: responses, or (verl) tokens
    count = s.mask.sum(1)[alive] if form == "verl" else np.ones(alive.sum())
    mean = np.average(u[alive], weights=count)
    var = (count * (u[alive] - mean) ** 2).sum() / (count.sum() - 1)
    A = np.zeros((len(s.group), 1))
    A[alive, 0] = (u[alive] - mean) / {
        "trl": np.sqrt(var) + 1e-4,
        "verl": np.sqrt(var + 1e-8),
        "nemo_rl": np.sqrt(var),
    }[form]

    J, dJ = clipped(*ratio(s), A, low, high)
    k, dk = k3(s)
    return token_mean(s, J - beta * k, dJ - beta * dk)


@cases(
    {},
    {"omega": 0.3},
    {"gamma": 0.9},
    {"std": True},
    {"std": True, "eps": 0.1},
    {"by_turn": False},
    {"low": 0.1, "high": 0.4},
)
def gigpo(s, *, omega=1.0, gamma=1.0, std=False, eps=1e-6, by_turn=True, low=0.2, high=0.2):
    def compared(x, times=1):
        """x less its mean, over its deviation (ddof 1); 0 where all are equal."""
        every = np.repeat(x, times)
        scale = every.std(ddof=1) + eps if std and len(every) > 1 else 1
        return (x - every.mean()) / scale if x.min() < x.max() else np.zeros(len(x))

    A = np.zeros(s.mask.shape)
    for rows in groups(s):
        # a step: (rollout, turn, state that it began in, return from it on)
        steps, turns = [], []
        for i in rows:
            numbers, G = np.unique(s.turn[i, s.mask[i]]), 0.0
            turns.append(len(numbers))
            for k in numbers[::-1]:
                tokens = s.mask[i] & (s.turn[i] == k)
                G = s.token_reward[i, tokens].sum() + gamma * G
                steps.append((i, k, s.anchor[i, tokens][0], G))

        # the rewards of the group are compared, and the returns of the steps that began in the same state
        A[rows] += compared(s.reward[rows], turns if by_turn else 1)[:, None]
        for state in {state for _, _, state, _ in steps}:
            alike = [step for step in steps if step[2] == state]
            for (i, k, _, _), a in zip(alike, compared(np.array([G for *_, G in alike])), strict=True):
                A[i] += omega * a * (s.mask[i] & (s.turn[i] == k))
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases(
    {},
    {"coef": 0.3},
    {"outcome_rewards": 2},
    {"outcome_rewards": 3},
    {"beta": 0.1},
    {"low": 0.1, "high": 0.4},
    {"norm": "joint"},
    {"norm": "joint", "coef": 0.3, "outcome_rewards": 2},
)
def mt_grpo(s, *, coef=1.0, outcome_rewards=1, norm="each", beta=0.0, low=0.2, high=0.2):
    of_turn, of_outcome = s.rewards[:, :-outcome_rewards].sum(1), s.rewards[:, -outcome_rewards:].sum(1)
    A_turn, A_outcome, A_both = (group_advantage(s, R, eps=1e-4) for R in (of_turn, of_outcome, of_turn + of_outcome))

    # the outcome judges every turn, the turn rewards the first; with a single turn the sum of both does
    A = np.zeros(s.mask.shape)
    for i, on in enumerate(s.mask):
        turns = np.unique(s.turn[i, on])
        if len(turns):
            several = A_outcome[i] + coef * A_turn[i] * (s.turn[i] == turns[0])
            A[i] = A_both[i] if len(turns) == 1 else several

    # or one scale for all, the larger deviation of the two: the whole in the first turn, later the outcome, each less
    # its mean
    for rows in groups(s) if norm == "joint" else ():
        out, whole = of_outcome[rows], of_outcome[rows] + coef * of_turn[rows]
        differ = np.ptp(whole) > 0 or np.ptp(out) > 0
        scale = max(np.std(whole, ddof=1), np.std(out, ddof=1)) + 1e-4 if differ else np.inf
        for i, x, y in zip(rows, whole - whole.mean(), out - out.mean(), strict=True):
            A[i] = np.where(s.turn[i] == s.turn[i, s.mask[i]].min(initial=10**6), x, y) / scale

    J, dJ = clipped(*ratio(s), A, low, high)
    k, dk = k3(s)
    return token_mean(s, J - beta * k, dJ - beta * dk)


@cases({}, {"zero_tail": False}, {"token_reward": True}, {"rollout_cap": 1.01}, {"low": 0.1, "high": 0.4})
def otb(s, *, zero_tail=True, token_reward=False, rollout_cap=None, low=0.2, high=0.2):
    A, rho = np.zeros(s.mask.shape), np.ones(s.mask.shape)
    if rollout_cap is not None:
        rho = np.minimum(np.exp(np.clip(s.old_logprob - s.rollout_logprob, -20, 20)), rollout_cap)
    w = (1 - 2 * np.exp(s.old_logprob) + s.old_collision).clip(min=0) * rho**2
    for rows in groups(s):
        # of each rollout, at its response tokens: G, the reward still to come, and W, the norms up to the token
        G, W = [], []
        for i in rows:
            on = s.mask[i]
            W.append(np.cumsum(w[i, on]))
            G.append(np.cumsum(s.token_reward[i, on][::-1])[::-1] if token_reward else np.full(on.sum(), s.reward[i]))
        for t in range(max(map(len, G))):
            there = [k for k in range(len(rows)) if len(G[k]) > t]
            least = min(G[k][t] for k in there)
            B = least + sum(W[k][t] * (G[k][t] - least) for k in there) / (sum(W[k][t] for k in there) + 1e-8)
            if len(there) == 1 and (zero_tail or len(rows) == 1):
                B = 0.0
            for k in there:
                A[rows[k], np.flatnonzero(s.mask[rows[k]])[t]] = G[k][t] - B
    J, dJ = clipped(*ratio(s), A, low, high)
    return token_mean(s, rho * J, rho * dJ)


@cases({}, {"count": "rollouts"}, {"low": 0.1, "high": 0.4})
def t_spmo(s, *, count="pairs", low=0.2, high=0.2):
    # every token is a pair (u, v): the response so far (-1: what a tool wrote), in the group's tree, and the next token
    pair = {}
    for i, t in zip(*np.nonzero(s.mask), strict=True):
        response_so_far = tuple(np.where(s.mask, s.token_ids, -1)[i, :t].tolist())
        pair[i, t] = (s.group[i], response_so_far), s.token_ids[i, t]

    followers = defaultdict(lambda: defaultdict(list))  # u -> v -> rewards of the rollouts that pass through (u, v)
    for (i, _), (u, v) in pair.items():
        followers[u][v].append(s.reward[i])

    # A(u, v) = E[R | u, v] - E[R | u, another token]; without another token there is nothing to compare.
    # "pairs": each distinct pair counts once, in a mean over the branching ones instead of the tokens
    branching = sum(len(next_tokens) for next_tokens in followers.values() if len(next_tokens) > 1)
    A = np.zeros(s.mask.shape)
    for (i, t), (u, v) in pair.items():
        without_v = [R for w, rewards in followers[u].items() if w != v for R in rewards]
        if without_v:
            A[i, t] = np.mean(followers[u][v]) - np.mean(without_v)
            if count == "pairs":
                A[i, t] *= s.mask.sum() / branching / len(followers[u][v])
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases({}, {"low": 0.1, "high": 0.4})
def vineppo(s, *, low=0.2, high=0.2):
    return token_mean(s, *clipped(*ratio(s), whitened(s.gain, s.mask), low, high))


@cases({}, {"below": 0.3}, {"low": 0.1, "high": 0.4})
def spo(s, *, below=0.9, low=0.2, high=0.2):
    # whitened over the improbable tokens, in the mean over them; the others get 0
    kept = s.mask & (np.exp(s.old_logprob) < below)
    return loss(kept / max(1, kept.sum()), *clipped(*ratio(s), whitened(s.gain, kept), low, high))


@cases(
    *crossed(
        [{}, {"entropy_clamp": (0.2, 0.28)}, {"a1": 0.7, "a2": 0.5, "low": 0.1, "high": 0.4, "threshold": 0.3}],
        normalise=("with_zeros", "own_set", "pooled"),
        scope=("group", "batch"),
    )
)
def gtpo(
    s, *, a1=1.0, a2=0.1, normalise="with_zeros", scope="group", entropy_clamp=None, low=0.2, high=0.28, threshold=0.0
):
    H = np.clip(np.maximum(s.old_entropy, 1e-8), *(entropy_clamp or (0, np.inf)))

    # only groups with both outcomes speak; with scope "batch" the entropies of all of them are compared together
    right = s.reward > threshold
    mixed = [rows for rows in groups(s) if 0 < right[rows].sum() < len(rows)]
    units = mixed if scope == "group" or not mixed else [np.concatenate(mixed)]

    # r~+ of the tokens of O+, r~- of those of O-:
    # r~+ = a1 + a2 d_t H_it / Σ_k H_kt,  r~- = -a1 - a2 h_t (1/H_jt) / Σ_k (1/H_kt), sums over the set alive at t
    rplus, rminus = np.zeros(s.mask.shape), np.zeros(s.mask.shape)
    for rows in units:
        for t in range(s.mask.shape[1]):
            p, m = (rows[s.mask[rows, t] & (right[rows] == side)] for side in (True, False))
            rplus[p, t] = a1 + a2 * len(p) * H[p, t] / H[p, t].sum()
            rminus[m, t] = -a1 - a2 * len(m) * (1 / H[m, t]) / (1 / H[m, t]).sum()

    # each set's shaped rewards less the mean, over the std (n - 1), of its collection in the group
    A = np.zeros(s.mask.shape)
    for rows in mixed:
        all_tokens = s.mask & np.isin(np.arange(len(right)), rows)[:, None]
        for side, shaped in ((right, rplus), (~right, rminus)):
            own = all_tokens & side[:, None]
            collection = {
                "with_zeros": shaped[all_tokens],
                "own_set": shaped[own],
                "pooled": (rplus + rminus)[all_tokens],
            }[normalise]
            if np.ptp(collection) > 0:
                A[own] = (shaped[own] - collection.mean()) / (collection.std(ddof=1) + 1e-6)
    return token_mean(s, *clipped(*ratio(s), A, low, high))


@cases(
    *crossed(
        [{}, {"lam": 0.9, "gamma": 0.8, "critic_lam": 0.5, "value_clip": 0.1}, {"lam": 0.0, "low": 0.1, "high": 0.4}],
        whiten=(True, False),
        token_reward=(True, False),
    ),
    {"lam": 0.9, "beta": 0.3},
    {"lam": 0.9, "gamma": 0.8, "beta": 0.1, "entropy": 0.5, "whiten": False},
)
def ppo(
    s, *, lam=1, gamma=1, whiten=True, token_reward=False, beta=0, entropy=0, low=0.2, high=0.2, critic_lam=1,
    value_clip=0.5,
):  # fmt: skip
    # what the critic is fitted to is no part of this loss: `value_loss` below
    A, _ = gae(s, arriving(s, token_reward, beta, entropy), lam, gamma)
    return token_mean(s, *clipped(*ratio(s), whitened(A, s.mask) if whiten else A, low, high))


@cases(
    {},
    {"alpha": 0.4, "coef": 0.7},
    {"alpha": 0.4, "whiten": False, "coef": 0.0, "critic_lam": 0.5, "value_clip": 0.1},
    {"alpha": 3.0, "threshold": 0.5, "low": 0.1, "high": 0.4},
)
def vapo(s, *, alpha=0.05, coef=0.1, threshold=0.0, whiten=True, low=0.2, high=0.28, critic_lam=1, value_clip=0.5):
    lam = [1 - 1 / max(alpha * n, 1) for n in s.mask.sum(1)]
    A, _ = gae(s, arriving(s), lam, 1)
    value, slope = token_mean(s, *clipped(*ratio(s), whitened(A, s.mask) if whiten else A, low, high))
    right = s.mask & (s.reward > threshold)[:, None]
    share = right / max(right.sum(), 1)
    return value - coef * (share * s.logprob).sum(), slope - coef * share


@cases(
    {},
    {"share": 0.0},
    {"segments": 1},
    {"segments": 10, "share": 2.5},
    {"segments": 3, "share": 0.5, "low": 0.1, "high": 0.4},
    {"segments": 2, "separator": 1},
)
def ospo(s, *, segments=4, separator=None, share=1, low=0.2, high=0.2):
    # the value of a segment is the mean gain over its tokens, A = A_i + share (K φ - Σ φ) / (std + 1e-6)
    A = np.zeros(s.mask.shape) + group_advantage(s)
    for rows in groups(s):
        R, apart = s.reward[rows], []
        for i in rows if R.min() < R.max() else ():
            units = [[]]
            for t in np.flatnonzero(s.mask[i]):
                units[-1].append(t)
                if separator is None or s.token_ids[i, t] == separator:
                    units.append([])
            units = [unit for unit in units if unit]
            K = min(segments, len(units))
            pieces = [[t for u, x in enumerate(units) if u * K // len(units) == k for t in x] for k in range(K)]
            worth = [s.gain[i, piece].mean() for piece in pieces]
            apart += [(i, piece, K * phi - sum(worth)) for piece, phi in zip(pieces, worth, strict=True)]
        # a deviation of rewards that is rounding, beside the differences between segments, counts as none
        std, largest = R.std(ddof=1) if apart else 0.0, max((abs(x) for *_, x in apart), default=0.0)
        for i, piece, x in apart if std > 1e-6 * largest else ():
            A[i, piece] += share * x / (std + 1e-6)
    return sequence_mean(s, *clipped(*ratio(s), A, low, high))


@cases(
    {},
    {"dpo": 0.4, "bound": 0.1, "whiten": False},
    {"dpo": 0.0, "beta": 0.0, "lam": 1.0, "low": 0.1, "high": 0.4},
    {"dpo": 2.0, "bound": np.inf, "beta": 0.3, "lam": 0.5, "value_clip": 0.1},
)
def rto(s, *, dpo=0.05, bound=0.05, beta=0.01, lam=0.95, low=0.2, high=0.2, value_clip=0.2, whiten=True):
    r = arriving(s, beta=beta) + np.clip(dpo * (s.teacher_logprob - s.ref_logprob), -bound, bound)
    A, _ = gae(s, r, lam, 1)
    return sequence_mean(s, *clipped(*ratio(s), whitened(A, s.mask) if whiten else A, low, high))


def arriving(s, token_reward=False, beta=0.0, entropy=0.0):
    """[N, T] r_t: the tokens' own, or the response's at its last token; less beta times the log-ratio to π_ref, and
    entropy times the log-probability."""
    r = np.array(s.token_reward) if token_reward else np.zeros(s.mask.shape)
    for i in range(0 if token_reward else len(r)):
        if s.mask[i].any():
            r[i, np.flatnonzero(s.mask[i])[-1]] = s.reward[i]
    return r - beta * (s.old_logprob - s.ref_logprob) - entropy * s.old_logprob


def gae(s, r, lam, gamma):
    """A_k = Σ_j (γ λ)^j δ_{k+j} over the response's tokens k, and the target V + A; both 0 outside the mask."""
    A = np.zeros(s.mask.shape)
    for i, on in enumerate(s.mask):
        V, n = np.append(s.value[i][on], 0.0), on.sum()
        delta = r[i][on] + gamma * V[1:] - V[:-1]
        decay = gamma * (lam[i] if np.ndim(lam) else lam)
        A[i, on] = [sum(decay ** (j - k) * delta[j] for j in range(k, n)) for k in range(n)]
    return A, np.where(s.mask, s.value + A, 0.0)


def value_loss(s, v, target, clip):
    """Mean over tokens of ½ max((v − G)², (clip(v, V ± clip) − G)²), and its derivative by v [N, T]."""
    near = np.clip(v, s.value - clip, s.value + clip)
    far, close = (v - target) ** 2, (near - target) ** 2
    inside = np.abs(v - s.value) <= clip
    slope = np.where(far >= close, v - target, (near - target) * inside)
    return (s.mask * np.maximum(far, close) / 2).sum() / s.mask.sum(), s.mask * slope / s.mask.sum()

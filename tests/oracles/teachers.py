"""Methods that learn from a teacher: loss and hand-derived gradient."""

import numpy as np

from .prelude import cases, clipped, group_advantage, groups, likelihood, ratio, sequence_mean, token_mean


@cases({}, {"gamma": 1.0}, {"coef": 0.3, "gamma": 0.7, "rewards": True}, {"gamma": 0.5, "bound": 0.8})
def opd(s, *, coef=1, gamma=0, bound=np.inf, rewards=False):
    # A = coef Σ_{k>=t} gamma^(k - t) x_k over the response's tokens, x = log q - log p_old; and R - mean with rewards
    A = coef * np.clip(to_go(s, s.teacher_logprob - s.old_logprob, gamma), -bound, bound)
    A = A + rewards * group_advantage(s, std=False)
    r, dr = ratio(s)
    return token_mean(s, r * A, dr * A)


@cases({}, {"gamma": 0.0}, {"gamma": 2.0})
def iw_opd(s, *, gamma=0.5):
    # A = (1 + gamma (1 - Σ_{k<t} |x_k| / Σ_k |x_k|)) x, x = log q - log p_old; J = A lp
    A = np.zeros(s.mask.shape)
    for i, row in enumerate(s.mask):
        x = (s.teacher_logprob - s.old_logprob)[i, row]
        A[i, row] = [(1 + gamma * (1 - sum(abs(x[:t])) / sum(abs(x)))) * x[t] for t in range(len(x))]
    return token_mean(s, *likelihood(s, A))


@cases({}, {"beta": 0.0}, {"beta": 1.0, "coef": 0.3, "rewards": True})
def gkd(s, *, beta=0.5, coef=1, rewards=False):
    # which divergence it is, `test_teacher.py` of the head tests: the sample holds its value
    (r, dr), A = ratio(s), rewards * group_advantage(s, std=False)
    return token_mean(s, r * A - coef * s.teacher_divergence, dr * A)


@cases({}, {"lam": 1.0, "eps": 0.6}, {"lam": 0.3, "low": 0.1, "high": 0.4})
def rlsd(s, *, low=0.2, high=0.2, lam=0.5, eps=0.2):
    # 1 - lam + lam · the teacher's preference, turned around for a wrong response and within 1 ± eps
    A = group_advantage(s)
    preferred = np.clip(np.exp(np.sign(A) * (s.teacher_logprob - s.old_logprob)), 1 - eps, 1 + eps)
    J, dJ = clipped(*ratio(s), A, low, high)
    w = 1 - lam + lam * preferred
    return sequence_mean(s, w * J, w * dJ)


@cases({}, {"coef": 0.7, "gate": 1.0, "low": 0.1}, {"coef": 0.0, "high": 0.4})
def sdar(s, *, low=0.2, high=0.2, coef=0.1, gate=5):
    # minus coef σ(gate x) x, the gate without gradient: ∂x/∂lp = -1
    x = s.teacher_logprob - s.logprob
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high)
    gated = coef / (1 + np.exp(-gate * x))
    return token_mean(s, J - gated * x, dJ + gated)


@cases({}, {"cap": 1.1, "threshold": 0.5})
def sdpo(s, *, cap=2, threshold=1):
    # min(r, cap) · (lp - log q) is value and slope, of responses that another one's success informs
    x = s.logprob - s.teacher_logprob
    r, _ = ratio(s)
    told = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        for i in rows:
            told[i] = any(s.reward[j] >= threshold for j in rows if j != i)
    J = -told * np.minimum(r, cap) * x
    return sequence_mean(s, J, J)


def to_go(s, x, gamma):
    """[N, T] Σ_{k>=t} gamma^(k - t) x_k over the tokens of the mask."""
    y = np.zeros(s.mask.shape)
    for i, on in enumerate(s.mask):
        y[i, on] = [sum(gamma**j * later for j, later in enumerate(x[i, on][k:])) for k in range(on.sum())]
    return y

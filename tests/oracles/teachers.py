"""Methods that learn from a teacher: loss and hand-derived gradient."""

import numpy as np

from .prelude import cases, groups, ratio, token_mean


@cases({}, {"gamma": 1.0}, {"coef": 0.3, "gamma": 0.7, "rewards": True}, {"gamma": 0.5, "bound": 0.8})
def opd(s, *, coef=1, gamma=0, bound=np.inf, rewards=False):
    # A = coef Σ_{k>=t} gamma^(k - t) x_k over the response's tokens, x = log q - log p_old; and R - mean with rewards
    A = coef * np.clip(to_go(s, s.teacher_logprob - s.old_logprob, gamma), -bound, bound)
    for rows in groups(s) if rewards else ():
        A[rows] += (s.reward[rows] - s.reward[rows].mean())[:, None]
    r, dr = ratio(s)
    return token_mean(s, r * A, dr * A)


@cases({}, {"beta": 0.0}, {"beta": 1.0, "coef": 0.3, "rewards": True})
def gkd(s, *, beta=0.5, coef=1, rewards=False):
    # which divergence it is, `test_teacher.py` of the head tests: the sample holds its value
    r, dr = ratio(s)
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s) if rewards else ():
        A[rows, 0] = s.reward[rows] - s.reward[rows].mean()
    return token_mean(s, r * A - coef * s.teacher_divergence, dr * A)


def to_go(s, x, gamma):
    """[N, T] Σ_{k>=t} gamma^(k - t) x_k over the tokens of the mask."""
    y = np.zeros(s.mask.shape)
    for i, on in enumerate(s.mask):
        y[i, on] = [sum(gamma**j * later for j, later in enumerate(x[i, on][k:])) for k in range(on.sum())]
    return y

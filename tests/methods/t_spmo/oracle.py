"""T-SPMO (2504.20834): loss and hand-derived gradient, NumPy float64."""

from collections import defaultdict

import numpy as np

from oracle_support.prelude import clipped, ratio, token_mean

CASES = [{}, {"count": "rollouts"}, {"low": 0.1, "high": 0.4}]


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

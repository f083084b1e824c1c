"""GiGPO (2505.10978): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, groups, ratio, token_mean

CASES = [
    {},
    {"omega": 0.3},
    {"gamma": 0.9},
    {"std": True},
    {"std": True, "eps": 0.1},
    {"by_turn": False},
    {"low": 0.1, "high": 0.4},
]


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

"""MT-GRPO (2505.11821): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, k3, ratio, token_mean

CASES = [{}, {"coef": 0.3}, {"outcome_rewards": 2}, {"outcome_rewards": 3}, {"beta": 0.1}, {"low": 0.1, "high": 0.4}]


def mt_grpo(s, *, coef=1.0, outcome_rewards=1, beta=0.0, low=0.2, high=0.2):
    of_turn, of_outcome = s.rewards[:, :-outcome_rewards].sum(1), s.rewards[:, -outcome_rewards:].sum(1)
    A_turn, A_outcome, A_both = (group_advantage(s, R, eps=1e-4) for R in (of_turn, of_outcome, of_turn + of_outcome))

    # the outcome judges every turn, the turn rewards the first; with a single turn the sum of both does
    A = np.zeros(s.mask.shape)
    for i, on in enumerate(s.mask):
        turns = np.unique(s.turn[i, on])
        if len(turns):
            several = A_outcome[i] + coef * A_turn[i] * (s.turn[i] == turns[0])
            A[i] = A_both[i] if len(turns) == 1 else several

    J, dJ = clipped(*ratio(s), A, low, high)
    k, dk = k3(s)
    return token_mean(s, J - beta * k, dJ - beta * dk)

"""GiGPO (2505.10978) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def gigpo(
    mask, reward, group, token_reward, turn, anchor, old_logprob, logprob,
    *, omega=1.0, gamma=1.0, std=False, eps=1e-6, by_turn=True,
):  # fmt: skip
    alive = mask.any(1)

    def compared(x, times=1):
        """x less its mean, over its deviation (ddof 1); 0 where all are equal."""
        if x.min() == x.max():
            return np.zeros(len(x))
        every = np.repeat(x, times)
        return (x - every.mean()) / (every.std(ddof=1) + eps if std else 1)

    # a step: (rollout, turn, state that it began in, return from it on)
    steps = []
    for i in np.flatnonzero(alive):
        G = 0.0
        for k in np.unique(turn[i, mask[i]])[::-1]:
            tokens = mask[i] & (turn[i] == k)
            G = token_reward[i, tokens].sum() + gamma * G
            steps.append((i, k, anchor[i, tokens][0], G))

    A = np.zeros(mask.shape)
    for g in np.unique(group[alive]):
        rows = np.flatnonzero(alive & (group == g))
        turns = np.array([len(np.unique(turn[i, mask[i]])) for i in rows])
        A[rows] += compared(reward[rows], turns if by_turn else 1)[:, None]
        for state in {s for i, _, s, _ in steps if i in rows}:
            alike = [step for step in steps if step[0] in rows and step[2] == state]
            for (i, k, _, _), a in zip(alike, compared(np.array([G for *_, G in alike])), strict=True):
                A[i] += omega * a * (mask[i] & (turn[i] == k))

    # min(r A, clip(r, 0.8, 1.2) A)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)
    J = np.minimum(r * A, np.clip(r, 0.8, 1.2) * A)
    dJ = np.where(A > 0, r <= 1.2, r >= 0.8) * A * dr

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

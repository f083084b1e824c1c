"""OTB (2602.07078): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, groups, ratio, token_mean

CASES = [{}, {"zero_tail": False}, {"token_reward": True}, {"rollout_cap": 1.01}, {"low": 0.1, "high": 0.4}]


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

"""OTB (2602.07078) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def otb(
    mask, reward, group, token_reward, old_collision, rollout_logprob, old_logprob, logprob,
    *, zero_tail=True, token_reward_=False, rollout_cap=None,
):  # fmt: skip
    A = np.zeros(mask.shape)
    rho = np.ones(mask.shape)
    if rollout_cap is not None:
        rho = np.minimum(np.exp(np.clip(old_logprob - rollout_logprob, -20, 20)), rollout_cap)
    for g in np.unique(group[mask.any(1)]):
        rows = np.flatnonzero((group == g) & mask.any(1))
        # of each rollout, at its response tokens: G, the reward still to come, and W, the norms up to the token
        G, W = [], []
        for i in rows:
            on = mask[i]
            w = (1 - 2 * np.exp(old_logprob[i, on]) + old_collision[i, on]).clip(min=0) * rho[i, on] ** 2
            W.append(np.cumsum(w))
            G.append(np.cumsum(token_reward[i, on][::-1])[::-1] if token_reward_ else np.full(on.sum(), reward[i]))
        for t in range(max(map(len, G))):
            there = [k for k in range(len(rows)) if len(G[k]) > t]
            least = min(G[k][t] for k in there)
            B = least + sum(W[k][t] * (G[k][t] - least) for k in there) / (sum(W[k][t] for k in there) + 1e-8)
            if len(there) == 1 and (zero_tail or len(rows) == 1):
                B = 0.0
            for k in there:
                A[rows[k], np.flatnonzero(mask[rows[k]])[t]] = G[k][t] - B

    # rho min(r A, clip(r, 0.8, 1.2) A)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)
    J = rho * np.minimum(r * A, np.clip(r, 0.8, 1.2) * A)
    dJ = rho * np.where(A > 0, r <= 1.2, r >= 0.8) * A * dr

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

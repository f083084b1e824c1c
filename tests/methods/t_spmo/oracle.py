"""T-SPMO (2504.20834) as one straight line: loss and hand-derived gradient, NumPy float64."""

from collections import defaultdict

import numpy as np


def t_spmo(mask, reward, group, old_logprob, logprob, token_ids, *, count="pairs", low=0.2, high=0.2):
    # every token is a pair (u, v): the response so far, in the group's tree, and the token that follows it
    pair = {}
    for i, t in zip(*np.nonzero(mask), strict=True):
        response_so_far = tuple(int(v) for v in token_ids[i, :t][mask[i, :t]])
        pair[i, t] = (int(group[i]), response_so_far), int(token_ids[i, t])

    followers = defaultdict(lambda: defaultdict(list))  # u -> v -> rewards of the rollouts that pass through (u, v)
    for (i, _), (u, v) in pair.items():
        followers[u][v].append(reward[i])

    # A(u, v) = E[R | u, v] - E[R | u, another token]; without another token there is nothing to compare
    credit, branching = {}, set()
    for u, next_tokens in followers.items():
        for v, with_v in next_tokens.items():
            without_v = [R for w, rewards in next_tokens.items() if w != v for R in rewards]
            credit[u, v] = np.mean(with_v) - np.mean(without_v) if without_v else 0.0
            if without_v:
                branching.add((u, v))

    # "pairs": each distinct pair counts once, in a mean over the branching ones instead of the tokens
    A = np.zeros(mask.shape)
    for (i, t), (u, v) in pair.items():
        A[i, t] = credit[u, v]
        if count == "pairs" and branching:
            A[i, t] = credit[u, v] / len(followers[u][v]) * mask.sum() / len(branching)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ

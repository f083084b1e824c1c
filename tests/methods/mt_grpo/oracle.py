"""MT-GRPO (2505.11821) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def mt_grpo(
    mask, group, rewards, turn, old_logprob, logprob, ref_logprob, *, coef=1.0, turn_rewards=1, beta=0.0
):  # fmt: skip
    alive = mask.any(1)
    of_turn, of_outcome = rewards[:, :turn_rewards].sum(1), rewards[:, turn_rewards:].sum(1)

    def norm(R):
        out = np.zeros(len(R))
        for g in np.unique(group[alive]):
            rows = alive & (group == g)
            if R[rows].min() < R[rows].max():
                out[rows] = (R[rows] - R[rows].mean()) / (R[rows].std(ddof=1) + 1e-4)
        return out

    A = np.zeros(mask.shape)
    for i in np.flatnonzero(alive):
        turns = np.unique(turn[i, mask[i]])
        if len(turns) == 1:
            A[i] = norm(of_turn + of_outcome)[i]
        else:
            A[i] = norm(of_outcome)[i] + coef * norm(of_turn)[i] * (turn[i] == turns[0])

    # min(r A, clip(r, 0.8, 1.2) A)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)
    J = np.minimum(r * A, np.clip(r, 0.8, 1.2) * A)
    dJ = np.where(A > 0, r <= 1.2, r >= 0.8) * A * dr

    # beta k3(π_ref/π) = beta (e^y - 1 - y), y = lp_ref - lp
    y = np.clip(ref_logprob - logprob, -20, 20)
    penalty, dpenalty = beta * (np.exp(y) - 1 - y), beta * (1 - np.exp(y))

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * (J - penalty)).sum(), -share * (dJ - dpenalty)

"""Forking tokens (2506.01939): loss and hand-derived gradient, NumPy float64."""

from oracle_support.prelude import clipped, crossed, group_advantage, k3, nearest_rank, ratio, token_mean

CASES = crossed(
    [
        {},
        {"fraction": 0.5, "beta": 0.3},
        {"fraction": 0.01, "low": 0.1, "high": 0.4},
        {"dual": 1.5, "fraction": 0.6},
        {"denominator": "kept", "beta": 0.3},
    ],
    entropy=("old", "current"),
)


def forking_tokens(s, *, entropy="old", fraction=0.2, low=0.2, high=0.28, dual=None, beta=0.0, denominator="all"):
    # policy gradient only on the tokens whose entropy reaches the batch's quantile; the authors' code divides by their
    # number, not by that of all tokens
    H = s.old_entropy if entropy == "old" else s.entropy
    forking = s.mask & (nearest_rank(H[s.mask], 1 - fraction) <= H)
    w = forking * (s.mask.sum() / forking.sum() if denominator == "kept" else 1)

    # - β k3 on every token
    J, dJ = clipped(*ratio(s), group_advantage(s), low, high, dual)
    k, dk = k3(s)
    return token_mean(s, w * J - beta * k, w * dJ - beta * dk)

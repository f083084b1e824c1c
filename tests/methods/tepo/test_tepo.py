"""TEPO v2 by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves, of, outcome


def test_by_hand() -> None:
    """As TEPO v1 (J = 0.2 a / 5) less k3 where A > 0 and the entropy fell: only token (0, 0).

    There r = 1.21: k3 = 0.21 - log 1.21, ∂k3/∂lp = 1.21 - 1. At (0, 1) the entropy rose; row 2 has A < 0.
    """
    a = 1 / (1 + 1e-6)
    sample = by_hand(
        [[1.21, 1.0], [1.3], [0.5, 2.0]],
        [2, 1, 0],
        old_entropy=np.ones((3, 2)),
        entropy=[[0.5, 1.5], [0.5], [0.5, 0.5]],
    )
    moves(
        "tepo",
        sample,
        -(0.2 * a - (0.21 - np.log(1.21))) / 5,
        -np.array([[1.1 * a - 0.21, 1.1 * a], [0, 0], [-a, -a]]) / 5,
    )


def test_below_the_reference_by_hand() -> None:
    """As TEPO v1 (J = 0.2 a / 5), less k3 of π_ref/π where A > 0 and lp > lp_ref: only token (0, 0), at π_ref/π = 1/2.

    There k3 = -1/2 + log 2 and ∂k3/∂lp = 1 - 1/2. At (0, 1) π_ref/π = 2; at (1, 0) A = 0; row 2 has A < 0.
    """
    a = 1 / (1 + 1e-6)
    sample = by_hand([[1.21, 1.0], [1.3], [0.5, 2.0]], [2, 1, 0])
    away = np.log([[0.5, 2], [0.5, 1], [0.5, 0.5]])
    sample = sample.but(ref_logprob=np.where(sample.mask, sample.logprob + away, 0))
    moves(
        "tepo",
        sample,
        -(0.2 * a - (np.log(2) - 0.5)) / 5,
        -np.array([[1.1 * a - 0.5, 1.1 * a], [0, 0], [-a, -a]]) / 5,
        decreasing="reference",
        kl_target="reference",
    )


def _entropy(logits: np.ndarray) -> float:
    p = np.exp(logits - logits.max())
    p /= p.sum()
    return float(-(p * np.log(p)).sum())


def test_analytic_mask_tells_what_a_step_on_the_logits_does() -> None:
    """For 200 random distributions over 6 tokens, one small step along A ∇_z log p(token) with A > 0."""
    rng = np.random.default_rng(0)
    n, V = 200, 6
    logits = rng.normal(scale=1.5, size=(n, V))
    token = rng.integers(0, V, n)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    H = -(p * np.log(p)).sum(1)
    falls = np.array([
        _entropy(logits[i] + 1e-4 * (np.eye(V)[token[i]] - p[i])) < H[i] for i in range(n)
    ])  # fmt: skip
    assert 30 < falls.sum() < 170

    chosen = np.log(p[np.arange(n), token])
    # row 0 is right, row 1 wrong; lp_old is off by 0.1, so that the penalty's gradient shows where the mask is on
    two = np.stack([chosen, chosen])
    drift = (p**2 * (np.log(p) + H[:, None])).sum(1)
    sample = of(
        np.ones((2, n)), np.array([1.0, 0.0]), np.array([0, 0]), old_logprob=two - 0.1, logprob=two,
        entropy=np.stack([H, H]), entropy_drift=np.stack([drift, drift]),
    )  # fmt: skip
    with_kl, without = (outcome("tepo", sample, decreasing="analytic", beta=b) for b in (1.0, 0.0))
    np.testing.assert_array_equal(with_kl.gradient[0] != without.gradient[0], falls)
    np.testing.assert_array_equal(with_kl.gradient[1], without.gradient[1])

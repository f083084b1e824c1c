"""GTPO by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import Sample, by_hand, close, outcome, ragged, run

# Two right rollouts, two wrong ones. Position 0: H = 3, 1 right (shares 3/4, 1/4 of d = 2), 1/H = 1, 3 wrong (shares
# 1/4, 3/4 of h = 2); position 1: one alive on each side (share 1 of 1). Shaped rewards with a1 = 1, a2 = 0.1:
#   r~+ = 1.15, 1.10 | 1.05        r~- = -1.05 | -1.15, -1.10
# Law: at position 0 they sum to 2.2 = (a1 + a2) d_t, at position 1 to 1.1.
ENTROPY = [[3.0, 5.0], [1.0], [1.0], [1 / 3, 4.0]]
ZEROS = np.sqrt((1.15**2 + 1.1**2 + 1.05**2 - 6 * 0.55**2) / 5) + 1e-6  # 3.3 / 6 = 0.55 is their mean with three zeros
OWN = 0.05 + 1e-6  # 1.15, 1.10, 1.05: mean 1.1, std 0.05
POOLED = np.sqrt(2 * (1.15**2 + 1.1**2 + 1.05**2) / 5) + 1e-6  # the two sides mirror each other: mean 0


@pytest.mark.parametrize(
    ("normalise", "expected"),
    [
        ("with_zeros", np.array([[0.6, 0.55], [0.5, 0], [-0.5, 0], [-0.6, -0.55]]) / ZEROS),
        ("own_set", np.array([[0.05, 0], [-0.05, 0], [0.05, 0], [-0.05, 0]]) / OWN),
        ("pooled", np.array([[1.15, 1.1], [1.05, 0], [-1.05, 0], [-1.15, -1.1]]) / POOLED),
    ],
)
def test_by_hand(normalise: str, expected: np.ndarray) -> None:
    """At ratio 1 the gradient is -A / 6, and J the mean of A; the ratio 1.5 at (0, 0) is clipped to 1.28."""
    objective = tokenpo.method("gtpo", normalise=normalise)
    still = run(objective, by_hand([[1, 1], [1], [1], [1, 1]], [1, 1, 0, 0], [3] * 4, old_entropy=ENTROPY))
    np.testing.assert_allclose(-6 * still.gradient, expected, rtol=1e-9, atol=1e-12)
    moved = run(objective, by_hand([[1.5, 1], [1], [1], [1, 1]], [1, 1, 0, 0], [3] * 4, old_entropy=ENTROPY))
    assert moved.value == pytest.approx(-(expected.sum() + 0.28 * expected[0, 0]) / 6, rel=1e-9)
    assert moved.gradient[0, 0] == 0


def test_clamped_entropies_by_hand() -> None:
    """Clamped to (0.2, 0.28): H = 0.28, 0.28 right, 0.28, 0.28 wrong: every share is 1 / d, every token ±1.1."""
    sample = by_hand([[1, 1], [1], [1], [1, 1]], [1, 1, 0, 0], [3] * 4, old_entropy=ENTROPY)
    got = outcome("gtpo", sample, normalise="pooled", entropy_clamp=(0.2, 0.28))
    A = 1.1 / (1.1 * np.sqrt(6 / 5) + 1e-6)
    np.testing.assert_allclose(-6 * got.gradient, [[A, A], [A, 0], [-A, 0], [-A, -A]], rtol=1e-12)


def _token_rewards(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens belong to right rollouts of mixed groups [N, T], and to wrong ones."""
    alive, right = sample.mask.any(1), sample.reward > 0
    outcomes = {g: set(right[alive & (sample.group == g)]) for g in sample.group}
    mixed = np.array([len(outcomes[g]) == 2 for g in sample.group])[:, None] & sample.mask
    return mixed & right[:, None], mixed & ~right[:, None]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("normalise", ["with_zeros", "pooled"])
def test_without_entropy_it_is_outcomes_normalised_over_tokens(seed: int, normalise: str) -> None:
    """a2 = 0. Pooled: ±1 z-scored over the group's tokens. With zeros: n- / n and -n+ / n over the std of a 0/1 set."""
    sample = ragged(seed)
    plus, minus = _token_rewards(sample)
    A = np.zeros(sample.mask.shape)
    for g in set(sample.group):
        p, m = plus & (sample.group == g)[:, None], minus & (sample.group == g)[:, None]
        n, ones = p.sum() + m.sum(), p.sum()
        if n == 0:
            continue
        std = np.sqrt(ones * (n - ones) / (n * (n - 1)))  # of `ones` ones among n, with n - 1
        if normalise == "with_zeros":
            A[p], A[m] = (n - ones) / n / (std + 1e-6), -ones / n / (std + 1e-6)
        else:  # ±1 has twice the spread
            A[p], A[m] = 2 * (n - ones) / n / (2 * std + 1e-6), -2 * ones / n / (2 * std + 1e-6)
    ours = outcome("gtpo", sample, a2=0.0, normalise=normalise)
    close(ours, outcome("dapo", sample, advantage=A, dual=1e9))


def test_correct_tokens_stay_positive_with_zeros_and_lose_their_mean_alone() -> None:
    """Why "with_zeros" is the default: the outcome survives; normalised in its own set it averages out."""
    sample = ragged(4)
    plus, minus = _token_rewards(sample)
    with_zeros = outcome("gtpo", sample.on_policy()).gradient
    assert (with_zeros[plus] < 0).all()
    assert (with_zeros[minus] > 0).all()
    own = outcome("gtpo", sample.on_policy(), normalise="own_set").gradient
    for g in set(sample.group):
        assert own[plus & (sample.group == g)[:, None]].sum() == pytest.approx(0, abs=1e-12)

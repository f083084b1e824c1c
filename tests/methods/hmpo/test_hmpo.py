"""HMPO by hand, and what is special about it."""

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import by_hand, close, moves, outcome, ragged


def _shaped(lengths: list[int], reward: list[float], **options) -> np.ndarray:
    """Rewards [N] of one group with these lengths, after shaping."""
    sample = by_hand([[1.0] * n for n in lengths], reward, [0] * len(lengths))
    field = {name: getattr(sample, name) for name in ("mask", "reward", "group", "old_logprob")}
    rollouts = tokenpo.Rollouts(**{k: torch.tensor(v) for k, v in field.items()})
    (stage,) = tokenpo.method("hmpo", **options).shaping
    return sample.reward + stage(rollouts).numpy()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 0.8, 0, 0]),
        ({"additive": True}, [2, 1.8, 1, 0]),
        ({"shift": 0.1}, [np.sqrt(0.5) + 0.1, 0.1, 0, 0]),
        ({"shift": 0.1, "scale": 0.5, "cap": 0.3}, [0.3, 0.1, 0, 0]),
        ({"shift": -0.2}, [np.sqrt(0.5) - 0.2, 0, 0, 0]),
        ({"threshold": 1.5}, [0, 0, 0, 0]),
        ({"scale": 0.0}, [0.8, 0.8, 0, 0]),
    ],
)
def test_shaped_rewards_by_hand(options: dict, expected: list[float]) -> None:
    """Right answers of 2, 4 and 6 tokens: b = 4. cos(π/4) = sqrt(1/2), cos(π/2) = 0; 6 is beyond. The wrong one: 0."""
    for wrong in (0.0, -1.0):
        seen = _shaped([2, 4, 6, 1], [1, 1, 1, wrong], **options)
        np.testing.assert_allclose(seen, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(("additive", "expected"), [(False, [0.5, 0, 0]), (True, [1.0, 0.9, 0])])
def test_the_score_multiplies_by_hand(additive: bool, expected: list[float]) -> None:
    """Right answers of 2 and 4 tokens: b = 3. f(2) = min(cos(π/3) + 0.8, 1) = 1, 4 is beyond; scores 0.5, 0.9."""
    seen = _shaped([2, 4, 1], [0.5, 0.9, -1.0], by_score=True, additive=additive)
    np.testing.assert_allclose(seen, expected, rtol=1e-14)


def test_the_median_of_two_lies_between_them() -> None:
    """b = 1.5: f(1) = min(cos(π/3) + 0.8, 1) = 1, and 2 is beyond."""
    np.testing.assert_allclose(_shaped([1, 2], [1, 1]), [1, 0], rtol=1e-14)
    np.testing.assert_allclose(_shaped([1, 2], [1, 1], cap=9.0), [1.3, 0], rtol=1e-14)


def test_a_single_right_answer_is_worth_the_shift() -> None:
    np.testing.assert_allclose(_shaped([5, 3], [1, 0]), [0.8, 0], rtol=1e-14)


def test_by_hand() -> None:
    """R' = 1, 0.8, 0, 0 of lengths 2, 4, 6, 1: mean 0.45, Σ of squares 0.55² + 0.35² + 2 · 0.45² = 0.83, std
    sqrt(0.83 / 3). All ratios are 1, but 1.5 (clipped at 1.28) of the first row. 13 tokens: Σ |o_i| A_i = 1.1 + 1.4 -
    2.7 - 0.45 = -0.65, and 0.28 · 0.55 more. π_ref = π: no divergence.
    """
    std = np.sqrt(0.83 / 3) + 1e-6
    sample = by_hand([[1.5, 1], [1] * 4, [1] * 6, [1]], [1, 1, 1, 0])
    expected = -np.array([0.55, 0.35, -0.45, -0.45])[:, None] * sample.mask / std / 13
    expected[0, 0] = 0
    moves("hmpo", sample.but(ref_logprob=sample.logprob), (0.65 - 0.28 * 0.55) / std / 13, expected)


def test_the_reference_reaches_every_token() -> None:
    """Nobody is right: β k3 at u = π_ref/π = 1/2 is all there is, ∂k3/∂lp = 1 - u."""
    sample = by_hand([[1.0], [1.0]], [0, 0])
    moves(
        "hmpo", sample.but(ref_logprob=sample.logprob + np.log(0.5)), 1e-3 * (np.log(2) - 0.5), [[0.00025], [0.00025]]
    )


def test_with_a_wide_shift_it_is_dapo_on_short_right_answers() -> None:
    """shift = 1: f = 1 up to the median."""
    sample = ragged(0)
    length, reward = sample.mask.sum(1), np.zeros(len(sample.reward))
    for g in set(sample.group):
        right = (sample.group == g) & (sample.reward > 0) & (length > 0)
        if right.any():
            reward[right] = length[right] <= np.median(length[right])
    assert 0 < reward.sum() < sample.reward.sum()
    dapo = outcome("dapo", sample.but(reward=reward))
    close(outcome("hmpo", sample, shift=1.0, beta=0.0), dapo, rtol=1e-12)

"""REINFORCE++ by hand, and what is special about it."""

import numpy as np
import torch

import tokenpo
from oracle_support import by_hand, close, moves, outcome, ragged


def test_by_hand() -> None:
    """Three tokens of reward 1, one of reward -1: mean 1/2, variance (3/4 + 9/4) / 3 = 1: A = 1/2 and -3/2 over s.

    1.1, 1, and 1.5 clipped at 1.2; 2 unclipped.
    """
    s = np.sqrt(1 + 1e-8)
    expected = np.array([[-0.55, -0.5, 0], [3, 0, 0]])
    moves("reinforce_pp", by_hand([[1.1, 1, 1.5], [2.0]], [1, -1], [0, 5]), -(3.3 * 0.5 - 3) / s / 4, expected / s / 4)


def test_the_divergence_is_paid_from_a_token_on() -> None:
    """Reward 0, β = 1, lp_old - lp_ref = 2, 1, 3: returns -6, -4, -3: mean -13/3, variance (25 + 1 + 16) / 9 / 2."""
    sample = by_hand([[1.0, 1, 1]], [0])
    sample = sample.but(ref_logprob=sample.old_logprob - np.array([[2.0, 1, 3]]))
    got = outcome("reinforce_pp", sample, beta=1.0)
    expected = np.array([[-5.0, 1, 4]]) / 3 / np.sqrt(42 / 18 + 1e-8)
    np.testing.assert_allclose(got.terms["advantage"], expected, rtol=1e-12)


def test_one_return_for_all_teaches_nothing() -> None:
    sample = ragged(0)
    assert not outcome("reinforce_pp", sample.but(reward=np.full(len(sample.reward), 0.1))).gradient.any()


def test_groups_do_not_matter() -> None:
    sample = ragged(0)
    one = outcome("reinforce_pp", sample)
    close(outcome("reinforce_pp", sample.but(group=np.zeros_like(sample.group))), one, rtol=1e-12)


def test_the_kl_still_to_come_is_summed_in_float64() -> None:
    """200 tokens of float32, against NumPy's sums of the same differences in float64."""
    g = torch.Generator().manual_seed(0)
    old, ref = (-3 * torch.rand(2, 200, generator=g) for _ in range(2))
    mask = torch.ones(2, 200, dtype=torch.bool)
    rollouts = tokenpo.Rollouts(mask, torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), old, ref_logprob=ref)
    kl = (old - ref).numpy().astype(np.float64)
    x = np.array([[1.0], [0.0]]) - 0.1 * kl[:, ::-1].cumsum(1)[:, ::-1]
    expected = (x - x.mean()) / np.sqrt(x.var(ddof=1) + 1e-8)
    seen = tokenpo.method("reinforce_pp", beta=0.1).credit(rollouts, torch.zeros(2))
    assert seen.dtype == torch.float64
    np.testing.assert_allclose(seen.numpy(), expected, rtol=1e-11, atol=1e-13)

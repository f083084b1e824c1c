"""VESPO by hand, and what is special about it."""

import dataclasses

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import by_hand, moves, outcome, ragged, run
from tokenpo.core.parts import LogLikelihood
from tokenpo.methods.vespo import Gamma

NOTHING = {"k_pos": 0.0, "lambda_pos": 0.0, "k_neg": 0.0, "lambda_neg": 0.0}


@pytest.mark.parametrize(
    ("advantage", "phi"),
    [
        (1.0, [np.exp(1.5) / 4, 1, np.exp(-3) * 4]),  # k 2, lambda 3: 1.12042, 1, 0.19915
        (-1.0, [np.exp(1) / 8, 1, np.exp(-2) * 8]),  # k 3, lambda 2: 0.33979, 1, 1.08268
    ],
)
def test_by_hand(advantage: float, phi: list[float]) -> None:
    """W = 1/2, 1, 2; the first as 2 · 1/4 in a response of two tokens. φ = e^lambda W^k e^(-lambda W). Four tokens,
    lp = log(r / 4): J = Σ φ A lp / 4, ∂J/∂lp = φ A / 4.
    """
    sample = by_hand([[2.0, 0.25], [1.0], [2.0]], [0] * 3)
    logs = [np.log(2 / 4) + np.log(0.25 / 4), np.log(1 / 4), np.log(2 / 4)]
    expected = -advantage * np.array([[phi[0], phi[0]], [phi[1], 0], [phi[2], 0]]) / 4
    moves("vespo", sample, -advantage * np.dot(phi, logs) / 4, expected, advantage=np.full((3, 2), advantage))


@pytest.mark.parametrize(("k", "rate", "most"), [(2.0, 3.0, np.exp(1) * (2 / 3) ** 2), (3.0, 2.0, 1.5**3 / np.exp(1))])
def test_the_weight_is_largest_at_k_over_lambda(k: float, rate: float, most: float) -> None:
    """φ(k / lambda) = e^(lambda - k) (k / lambda)^k."""
    weight = torch.linspace(0.01, 5, 500, dtype=torch.float64)
    seen = Gamma(k, rate)(torch.cat([weight, torch.tensor([k / rate], dtype=torch.float64)]).log())
    assert float(seen[-1]) == pytest.approx(most, rel=1e-12)
    assert (seen[:-1] <= seen[-1]).all()


def test_the_ratio_of_a_response_is_bounded() -> None:
    """e^-15 twice: W = 1e-8, φ = e^3 W² e^(-3 W). e^15 twice: W = e^20, whose weight is 0 and cuts the token off, if it
    had an advantage.
    """
    sample = by_hand([[np.exp(-15.0)] * 2, [np.exp(15.0)] * 2, [np.exp(15.0)] * 2], [0] * 3, p_old=1e-20)
    got = outcome("vespo", sample, advantage=np.array([[1.0] * 2, [1.0] * 2, [0.0] * 2]))
    np.testing.assert_allclose(got.terms["ratio"], [[1e-8] * 2, [np.exp(20)] * 2, [np.exp(20)] * 2], rtol=1e-12)
    expected = [[-np.exp(3 - 3e-8) * 1e-16 / 6] * 2, [0, 0], [0, 0]]
    np.testing.assert_allclose(got.gradient, expected, rtol=1e-12)
    assert got.terms["clipped"].tolist() == [[0, 0], [1, 1], [0, 0]]
    assert (got.terms["low"] == 0).all()
    assert (got.terms["high"] == np.inf).all()


def test_a_weight_that_overflows_is_none() -> None:
    """e^(100 · 8) is no float64."""
    assert Gamma(100.0, 0.0)(torch.tensor([8.0], dtype=torch.float64)).tolist() == [0]


def test_the_least_lambda() -> None:
    """0 counts as 1e-4: φ(2) = 2^k e^-1e-4."""
    for rate in (0.0, 1e-4, 5e-5):
        assert float(Gamma(3.0, rate)(torch.tensor(2.0).double().log())) == pytest.approx(8 * np.exp(-1e-4), rel=1e-12)
    assert float(Gamma(3.0, 2e-4)(torch.tensor(2.0).double().log())) == pytest.approx(8 * np.exp(-2e-4), rel=1e-12)


@pytest.mark.parametrize("options", [{}, NOTHING])
def test_on_policy_it_is_reinforce_and_moves_like_dapo(options: dict) -> None:
    sample, objective = ragged(0).on_policy(), tokenpo.method("vespo", **options)
    ours, reinforce = run(objective, sample), run(dataclasses.replace(objective, surrogate=LogLikelihood()), sample)
    assert ours.value == pytest.approx(reinforce.value, rel=1e-12)
    dapo = outcome("dapo", sample)
    for other in (reinforce, dapo):
        np.testing.assert_allclose(ours.gradient, other.gradient, rtol=1e-12, atol=1e-17)


@pytest.mark.parametrize("k", [0.0, 1.0])
def test_without_lambda_it_is_a_power_of_the_importance_weight(k: float) -> None:
    """k = 0: REINFORCE; k = 1: the importance weight of whole responses; but for the least lambda, e^(1e-4 (1 - W))."""
    sample, options = ragged(0), {**NOTHING, "k_pos": k, "k_neg": k}
    objective = tokenpo.method("vespo", **options)
    ours, reinforce = run(objective, sample), run(dataclasses.replace(objective, surrogate=LogLikelihood()), sample)
    weight = np.exp(np.where(sample.mask, sample.logprob - sample.old_logprob, 0).sum(1, keepdims=True))
    expected = weight**k * np.exp(1e-4 * (1 - weight)) * reinforce.gradient
    np.testing.assert_allclose(ours.gradient, expected, rtol=1e-11, atol=1e-17)
    assert (np.abs(weight - 1) > 0.1).any()

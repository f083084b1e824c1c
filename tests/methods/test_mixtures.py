"""VESPO, DHPO and REAL, whose loss joins the tokens of a response or the responses of a group, by hand."""

import dataclasses

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import by_hand, close, moves, of, outcome, ragged, run
from oracles.surrogates import label_loss
from tokenpo.core.parts import LogLikelihood
from tokenpo.methods.vespo import Gamma

every_form = pytest.mark.parametrize("form", ["mix_of_mins", "min_of_mixes"])
UP, DOWN = np.ones((1, 2)), -np.ones((1, 2))
NO_LAMBDA = {"lambda_pos": 0.0, "lambda_neg": 0.0}


@pytest.mark.parametrize(("form", "value", "slope"), [("mix_of_mins", 0.5502, 0.05), ("min_of_mixes", 0.8, 0.8)])
def test_dhpo(form: str, value: float, slope: float) -> None:
    """A = 1 on one response at r = 0.1 and 22.5: s = sqrt(2.25) = 1.5; A = 0 on another of two. Half and half.

    Token 0: (0.1 + 1.0004) / 2 = 0.5502, of which only r moves, 0.05; the other form: m = (0.1 + 1.5) / 2 = 0.8 is less
    than m' = (0.8 + 1.0004) / 2: both ratios move, and the outlier of one holds the minimum.
    Token 1: both are clipped in either form, (1.28 + 1.0004) / 2 = 1.1402.
    """
    sample, advantage = by_hand([[0.1, 22.5], [5.0, 5.0]], [0, 0]), np.array([[1.0, 1.0], [0.0, 0.0]])
    got = moves("dhpo", sample, -(value + 1.1402) / 4, [[-slope / 4], [0]], advantage=advantage, form=form)
    assert got.terms["clipped"].tolist() == [[0, 1], [0, 0]]
    np.testing.assert_allclose(got.terms["ratio"], [[0.8, 12], [5, 5]], rtol=1e-12)


@every_form
def test_dhpo_entropy_shares(form: str) -> None:
    """A = -1 at r = 2 and 1/2, s = 1; H_old = 4 and 1: a = 1 and 1/4. Token 0 moves by r = 2. Token 1: r is clipped at
    0.8 and s is not: J = -(0.8 / 4 + 3 / 4), moved by the 3/4 of s alone."""
    sample = by_hand([[2.0, 0.5]], [0], old_entropy=[[4.0, 1.0]])
    got = moves("dhpo", sample, 2.95 / 2, [[2 / 2, 0.75 / 2]], advantage=DOWN, mixing="entropy", form=form)
    assert not got.terms["clipped"].any()
    expected = {"ratio": [2, 0.875], "low": [0.8, 0.8 / 4 + 0.9997 * 0.75], "high": [1.28, 1.28 / 4 + 1.0004 * 0.75]}
    for name, row in expected.items():
        np.testing.assert_allclose(got.terms[name][0], row, rtol=1e-12)


def test_dhpo_takes_an_entropy_below_zero_for_zero() -> None:
    """a = 1 and 0: token 1 moves by s = 1 alone, r = 1/2 or not."""
    sample = by_hand([[2.0, 0.5]], [0], old_entropy=[[1.0, -1e-3]])
    moves("dhpo", sample, None, [[2 / 2, 1 / 2]], advantage=DOWN, mixing="entropy")


@every_form
def test_dhpo_moves_sure_tokens_as_gspo_token_and_others_as_grpo(form: str) -> None:
    """a = 0 at every token but the first of each response, where it is 1."""
    sample = ragged(1)
    first = np.zeros(sample.mask.shape)
    first[:, 0] = 1
    ours = outcome("dhpo", sample.but(old_entropy=first), mixing="entropy", form=form)
    gspo, grpo = outcome("gspo_token", sample), outcome("grpo", sample, high=0.28)
    np.testing.assert_allclose(ours.gradient, np.where(first, grpo.gradient, gspo.gradient), rtol=1e-12, atol=1e-17)


@every_form
def test_dhpo_clips_a_token_where_neither_ratio_moves_it(form: str) -> None:
    """A = 1 at r = 1.1 twice: s = 1.1 is held at 1.0004, r is not, J = (1.1 + 1.0004) / 2 moves by 1.1 / 2."""
    got = moves("dhpo", by_hand([[1.1, 1.1]], [0]), -1.0502, [[-0.55 / 2, -0.55 / 2]], advantage=UP, form=form)
    assert got.terms["clipped"].tolist() == [[0, 0]]


@every_form
def test_dhpo_a_ratio_without_a_share_holds_nothing(form: str) -> None:
    """A = 1 at r = 3/2 and 2/3, s = 1; H_old = 4 and 1: a = 1 and 1/4. Token 0 is r alone, held at 1.28. Token 1:
    2/3 / 4 + 3/4 = 11/12, of which everything moves."""
    sample = by_hand([[1.5, 2 / 3]], [0], old_entropy=[[4.0, 1.0]])
    got = outcome("dhpo", sample, advantage=UP, mixing="entropy", form=form)
    assert got.value == pytest.approx(-(1.28 + 11 / 12) / 2, rel=1e-12)
    np.testing.assert_allclose(got.gradient, [[0, -11 / 24]], rtol=1e-12, atol=1e-15)
    assert got.terms["clipped"].tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("advantage", "phi"),
    [
        (1.0, [np.exp(1.5) / 4, 1, np.exp(-3) * 4]),  # k 2, lambda 3: 1.12042, 1, 0.19915
        (-1.0, [np.exp(1) / 8, 1, np.exp(-2) * 8]),  # k 3, lambda 2: 0.33979, 1, 1.08268
    ],
)
def test_vespo(advantage: float, phi: list[float]) -> None:
    """W = 1/2, 1, 2; the first as 2 · 1/4 in a response of two tokens. φ = e^lambda W^k e^(-lambda W). Four tokens,
    lp = log(r / 4): J = Σ φ A lp / 4, ∂J/∂lp = φ A / 4."""
    logs = [np.log(2 / 4) + np.log(0.25 / 4), np.log(1 / 4), np.log(2 / 4)]
    gradient, given = [[phi[0], phi[0]], [phi[1]], [phi[2]]], np.full((3, 2), advantage)
    sample = by_hand([[2.0, 0.25], [1.0], [2.0]], [0] * 3)
    moves("vespo", sample, np.dot(phi, logs), gradient, unit=-advantage / 4, advantage=given)


@pytest.mark.parametrize(("k", "rate", "most"), [(2.0, 3.0, np.exp(1) * (2 / 3) ** 2), (3.0, 2.0, 1.5**3 / np.exp(1))])
def test_vespo_weighs_most_at_k_over_lambda(k: float, rate: float, most: float) -> None:
    """φ(k / lambda) = e^(lambda - k) (k / lambda)^k."""
    weight = torch.cat([torch.linspace(0.01, 5, 500).double(), torch.tensor([k / rate]).double()])
    phi = Gamma(k, rate)(weight.log())
    assert float(phi[-1]) == pytest.approx(most, rel=1e-6)
    assert (phi[:-1] <= phi[-1]).all()


def test_vespo_bounds_the_ratio_of_a_response() -> None:
    """e^-15 twice: W = 1e-8, φ = e^3 W² e^(-3 W). e^15 twice: W = e^20, whose weight is 0 and cuts the token off, if it
    has an advantage."""
    sample = by_hand([[np.exp(-15.0)] * 2, [np.exp(15.0)] * 2, [np.exp(15.0)] * 2], [0] * 3, p_old=1e-20)
    gradient, advantage = [[-np.exp(3 - 3e-8) * 1e-16 / 6] * 2, [0], [0]], np.array([[1.0] * 2, [1.0] * 2, [0.0] * 2])
    got = moves("vespo", sample, None, gradient, advantage=advantage)
    np.testing.assert_allclose(got.terms["ratio"], [[1e-8] * 2, [np.exp(20)] * 2, [np.exp(20)] * 2], rtol=1e-12)
    assert got.terms["clipped"].tolist() == [[0, 0], [1, 1], [0, 0]]
    assert (got.terms["low"] == 0).all() and (got.terms["high"] == np.inf).all()


@pytest.mark.parametrize(
    ("k", "rate", "log", "phi"),
    [
        (100.0, 0.0, 8.0, 0.0),  # e^800 is no float64
        (3.0, 0.0, np.log(2), 8 * np.exp(-1e-4)),  # a lambda of 0 counts as 1e-4
        (3.0, 5e-5, np.log(2), 8 * np.exp(-1e-4)),
        (3.0, 2e-4, np.log(2), 8 * np.exp(-2e-4)),
    ],
)
def test_vespo_at_the_ends_of_its_range(k: float, rate: float, log: float, phi: float) -> None:
    assert float(Gamma(k, rate)(torch.tensor(log).double())) == pytest.approx(phi, rel=1e-12)


@pytest.mark.parametrize("k", [0.0, 1.0])
def test_vespo_without_lambda_is_a_power_of_the_importance_weight(k: float) -> None:
    """k = 0: REINFORCE; k = 1: the importance weight of whole responses; but for the least lambda, e^(1e-4 (1 - W))."""
    sample, objective = ragged(0), tokenpo.method("vespo", k_pos=k, k_neg=k, **NO_LAMBDA)
    reinforce = run(dataclasses.replace(objective, surrogate=LogLikelihood()), sample)
    weight = np.exp(np.where(sample.mask, sample.logprob - sample.old_logprob, 0).sum(1, keepdims=True))
    expected = weight**k * np.exp(1e-4 * (1 - weight)) * reinforce.gradient
    np.testing.assert_allclose(run(objective, sample).gradient, expected, rtol=1e-11, atol=1e-17)
    assert (np.abs(weight - 1) > 0.1).any()


def test_real() -> None:
    """tau 1; s = log 2 right; log 2 on average (4, 1) and 0 wrong. L = log(1 + 1/2) + log(1 + 2 + 1) = log 6, and the
    other group, of equal rewards, counts: L/2. Slopes: right −(1/2)/(3/2) = −1/3, wrong 2/4 and 1/4, by tokens."""
    sample = by_hand([[2.0], [4.0, 1.0], [1.0], [3.0]], [1, 0, 0, 1], [0, 0, 0, 1])
    moves("real", sample, None, [[-1 / 3], [1 / 4, 1 / 4], [1 / 4], [0]], unit=1 / 2, tau=1.0)
    assert label_loss(sample, 1.0)[0] == pytest.approx(np.log(6) / 2, rel=1e-12)


def test_real_has_the_gradient_of_the_loss() -> None:
    """Central differences of L, which the value of the method is not."""
    sample = ragged(3, width=5)
    gradient, step = outcome("real", sample).gradient, 1e-6
    for i, t in zip(*np.nonzero(sample.mask), strict=True):
        way = np.zeros(sample.mask.shape)
        way[i, t] = step
        up, down = (label_loss(sample.but(logprob=sample.logprob + sign * way), 0.5)[0] for sign in (1, -1))
        assert gradient[i, t] == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-9)


def test_real_counts_a_response_at_the_mean_as_wrong() -> None:
    """Rewards 1, 1/2, 0: the middle one, whose advantage is 0, is pushed down and not left out."""
    got = outcome("real", by_hand([[1.0], [1.0], [1.0]], [1, 0.5, 0]))
    np.testing.assert_allclose(got.gradient[:, 0], [-1, 2 / 3, 2 / 3], rtol=1e-12)


def test_real_has_nothing_to_tell_apart_in_half_a_group() -> None:
    """The rewards of the whole group label it; an update on the right ones alone pushes nothing."""
    one = np.ones((2, 1))
    got = outcome("real", of(one, [1, 1], [0, 0], logprob=-one, old_logprob=-one), advantage=one)
    assert got.value == 0 and not got.gradient.any()


@pytest.mark.parametrize("name", ["real", "m2po"])
def test_any_split_of_a_step_adds_up_once_the_whole_was_observed(name: str) -> None:
    objective, sample = tokenpo.method(name), ragged(2)
    assert objective.scope == "batch"
    close(
        run(objective, sample, pieces=[slice(0, 4), slice(4, 12), slice(12, None)]), run(objective, sample), rtol=1e-12
    )

"""TR-GRPO against its oracle, by hand, and its reduction to GRPO."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run

PLACES = list(product(["advantage", "ratio"], ["none", "scale", "inside"]))
OPTIONS = [
    {},
    {"beta": 0.3},
    {"beta": 0.3, "weight_prob": "old", "low": 0.1, "high": 0.4},
    {"shape": "outside", "beta": 0.3},
    {"alpha": 1.5, "tau": -4.0, "mu": 0.4, "lower": 0.6, "upper": 1.2},
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("placement", "kl"), PLACES)
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, placement: str, kl: str, options: dict) -> None:
    agrees("tr_grpo", ragged(seed, binary=seed % 2 == 0), weight_placement=placement, kl_weighting=kl, **options)


# w = clip(2 σ(9 (p - 1/4)), 1, 1.4): 1 at p = 1/4 (σ(0) = 1/2), 1.2 where σ = 0.6, i.e. 9 (p - 1/4) = log 1.5,
# 1.4 (from 1.81) at p = 1/2, 1 (from 0.41) at p = 0.1.
P = [[0.25, 0.25 + np.log(1.5) / 9], [0.5, 0.1]]


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6); p is the current probability; all ratios 1 but 1.1 at (0, 1).

    J = [(1 + 1.1 · 1.2) a / 2 - (1.4 + 1) a / 2] / 2.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[1, 1.1], [1, 1]], [1, 0], [0, 0])
    sample = sample.but(logprob=np.log(P), old_logprob=np.log(np.array(P) / [[1, 1.1], [1, 1]]))
    got = run(tokenpo.method("tr_grpo"), sample)
    assert got.value == pytest.approx(-(1 + 1.32 - 1.4 - 1) * a / 4, rel=1e-10)
    np.testing.assert_allclose(got.gradient, np.array([[-1, -1.32], [1.4, 1]]) * a / 4, rtol=1e-12)


def test_mu_outside_the_sigmoid_by_hand() -> None:
    """w = clip(2 (σ(9 p) - 1/4), 1, 1.4). σ = 0.75 at p = log 3 / 9: 1; σ = 0.85 at log(17 / 3) / 9: 1.2; σ = 0.95 at
    log 19 / 9: 1.4; above that 1.4. All ratios 1, A = ±a."""
    p = np.array([[np.log(3), np.log(17 / 3)], [np.log(19), 4.0]]) / 9
    sample = by_hand([[1, 1], [1, 1]], [1, 0], [0, 0])
    sample = sample.but(logprob=np.log(p), old_logprob=np.log(p))
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    got = run(tokenpo.method("tr_grpo", shape="outside"), sample)
    np.testing.assert_allclose(got.gradient, np.array([[-1, -1.2], [1.4, 1.4]]) * a / 4, rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_weight_inside_the_clip_kills_confident_correct_tokens() -> None:
    """At p = 1/2 and ratio 1 the weighted ratio 1.4 is beyond 1.2: a right token stops, a wrong one does not."""
    sample = by_hand([[1], [1]], [1, 0], [0, 0], p_old=0.5)
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    got = run(tokenpo.method("tr_grpo", weight_placement="ratio"), sample)
    np.testing.assert_allclose(got.gradient, [[0], [1.4 * a / 2]], rtol=1e-12)
    assert got.value == pytest.approx(-(1.2 - 1.4) * a / 2, rel=1e-12)


def test_kl_inside_by_hand() -> None:
    """Equal rewards, p = 1/2, π_ref = π: u = w = 1.4, so k3 = 0.4 - log 1.4 and ∂k3/∂lp = 1 - 1.4."""
    got = run(tokenpo.method("tr_grpo", beta=0.1, kl_weighting="inside"), by_hand([[1]], [1], [0], p_old=0.5))
    assert got.value == pytest.approx(0.1 * (0.4 - np.log(1.4)), rel=1e-12)
    np.testing.assert_allclose(got.gradient, [[-0.1 * 0.4]], rtol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("kl", ["none", "scale", "inside"])
def test_unit_weights_make_it_grpo(beta: float, kl: str) -> None:
    ours = tokenpo.method("tr_grpo", lower=1.0, upper=1.0, beta=beta, kl_weighting=kl)
    close(run(ours, ragged(0)), run(tokenpo.method("grpo", beta=beta), ragged(0)), rtol=1e-12)

"""Rollout IS against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, coefficients, ragged, run


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"low": 0.5, "high": 3.0}, {"low": 1.0, "high": np.inf}])
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("rollout_is", ragged(seed), **options)


def test_by_hand() -> None:
    """The sampler is the old policy: ratios 1.1, 1.3 right and 0.9, 0.7 wrong; 1.3 and 0.7 are outside (0.8, 1.2)."""
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    old = [[np.log(0.25)] * 2] * 2
    got = run(tokenpo.method("rollout_is"), by_hand([[1.1, 1.3], [0.9, 0.7]], [1, 0], [0, 0], rollout_logprob=old))
    np.testing.assert_allclose(got.gradient, [[-1.1 * a / 4, 0], [0.9 * a / 4, 0]], rtol=1e-12)
    value = 1.1 * np.log(1.1 / 4) - 0.9 * np.log(0.9 / 4)
    assert got.value == pytest.approx(-a * value / 4, rel=1e-12)
    assert got.terms["clipped"].tolist() == [[False, True], [False, True]]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_effective_coefficient(sign: float) -> None:
    """Zero outside, whatever the sign; the bounds themselves are outside."""
    np.testing.assert_allclose(coefficients("rollout_is", sign) * sign, [0, 0, 0.9, 1, 1.1, 0, 0, 0], rtol=1e-12)


def test_without_bounds_it_has_the_gradient_of_dppo_without_its_own() -> None:
    sample = ragged(0)
    ours = run(tokenpo.method("rollout_is", low=1.0, high=np.inf), sample)
    dppo = run(tokenpo.method("dppo_tv", threshold=1.0, cap=1e9), sample)
    np.testing.assert_allclose(ours.gradient, dppo.gradient, rtol=1e-12, atol=1e-17)

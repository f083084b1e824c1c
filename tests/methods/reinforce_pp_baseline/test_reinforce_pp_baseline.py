"""REINFORCE++-baseline against its oracle and by hand."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run

OPTIONS = [{}, {"low": 0.1, "high": 0.4}, {"beta": 0.3}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("reinforce_pp_baseline", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """Rewards 3, 1 and a lone 7: x = 1, 1, -1, 0 over four tokens: mean 1/4, variance (9/16 · 2 + 25/16 + 1/16) / 3.

    1.1, 1.5 clipped at 1.2; 1; the lone token has A = -1/4 and 0.5 is held at 0.8.
    """
    s = np.sqrt(44 / 48 + 1e-8)
    got = run(tokenpo.method("reinforce_pp_baseline"), by_hand([[1.1, 1.5], [1.0], [0.5]], [3, 1, 7], [0, 0, 1]))
    assert got.value == pytest.approx(-(2.3 * 0.75 - 1.25 - 0.8 * 0.25) / s / 4, rel=1e-12)
    expected = np.array([[-1.1 * 0.75, 0], [1.25, 0], [0, 0]])
    np.testing.assert_allclose(got.gradient, expected / s / 4, rtol=1e-12)


def test_the_penalty_is_a_square() -> None:
    """Equal rewards leave β (log u)² / 2 at u = π_ref/π: 0.1 · (log 2)² / 2, moved by 0.1 log 2."""
    sample = by_hand([[1.0], [1.0]], [1, 1], [0, 0])
    reference = sample.logprob - np.array([[np.log(2)], [0]])
    got = run(tokenpo.method("reinforce_pp_baseline", beta=0.1), sample.but(ref_logprob=reference))
    assert got.value == pytest.approx(0.1 * np.log(2) ** 2 / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient, [[0.05 * np.log(2)], [0]], rtol=1e-12)


def test_in_one_group_of_equal_lengths_it_is_reinforce_pp() -> None:
    """The group's mean is the batch's: subtracting it first changes nothing."""
    sample = ragged(0, equal_lengths=True)
    sample = sample.but(group=np.zeros_like(sample.group))
    ours = run(tokenpo.method("reinforce_pp_baseline"), sample)
    close(ours, run(tokenpo.method("reinforce_pp"), sample), rtol=1e-10)

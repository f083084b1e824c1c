"""DAPO against its oracle, by hand, its reduction to GRPO and the dual clip's coefficients."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run

OPTIONS = [{}, {"low": 0.1, "high": 0.4}, {"dual": 3.0}, {"low": 0.3, "dual": 1.5}]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("dapo", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """A = a, 0, -a with a = 1 / (1 + 1e-6), six tokens in one mean.

    1.1 a, 1.5 clipped to 1.28 a; 0; 0.5 clipped to -0.8 a, 20 stopped by the dual clip at -10 a, -2 a.
    Loss = -(1.1 + 1.28 - 0.8 - 10 - 2) a / 6 = 10.42 a / 6.
    """
    a = 1 / (1 + 1e-6)
    got = run(tokenpo.method("dapo"), by_hand([[1.1, 1.5], [1.3], [0.5, 20.0, 2.0]], [2, 1, 0], [0, 0, 0]))
    assert got.value == pytest.approx(10.42 * a / 6, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.1, 0, 0], [0, 0, 0], [0, 0, 2]]) * a / 6, rtol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_equal_clips_and_lengths_make_it_grpo(seed: int) -> None:
    sample = ragged(seed, equal_lengths=True)
    close(run(tokenpo.method("dapo", high=0.2, dual=1e9), sample), run(tokenpo.method("grpo"), sample), rtol=1e-12)


@pytest.mark.parametrize(
    ("advantage", "coefficient"),
    [(1.0, [0.3, 0.7, 0.9, 1, 1.1, 0, 0, 0]), (-1.0, [0, 0, -0.9, -1, -1.1, -1.3, -2, 0])],
)
def test_effective_coefficient(advantage: float, coefficient: list[float]) -> None:
    """∇L = -mean[c ∇lp] with clip 0.2/0.2 and dual clip 3: the ratio 4 is silenced for A < 0."""
    sample = by_hand([[r] for r in (0.3, 0.7, 0.9, 1, 1.1, 1.3, 2, 4)], [0.0] * 8, [0] * 8, p_old=0.1)
    objective = tokenpo.method("dapo", low=0.2, high=0.2, dual=3.0)
    got = run(objective, sample, advantage=np.full((8, 1), advantage))
    np.testing.assert_allclose(-8 * got.gradient[:, 0], coefficient, rtol=1e-12)

"""GMPO against its oracle, by hand, its reductions, and through the table of effective coefficients."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, coefficients, ragged, run

OPTIONS = [{}, {"low": 0.1, "high": 0.2}, {"low": 0.0, "high": 5.0}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("gmpo", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). e^0.4 = 1.49...

    Row 0: 1.21 stays, e clipped to e^0.4: s = sqrt(1.21 e^0.4) = 1.1 e^0.2. Row 2 (A < 0): 4 stays, 1/4 is held at
    e^-0.4: s = 2 e^-0.2. J = (1.1 e^0.2 - 2 e^-0.2) a / 3; each unclipped token moves by s A / 2.
    """
    a = 1 / (1 + 1e-6)
    got = run(tokenpo.method("gmpo"), by_hand([[1.21, np.e], [1.3], [4, 0.25]], [2, 1, 0], [0, 0, 0]))
    up, down = 1.1 * np.exp(0.2), 2 * np.exp(-0.2)
    assert got.value == pytest.approx(-(up - down) * a / 3, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-up, 0], [0, 0], [down, 0]]) * a / 6, rtol=1e-12)


def test_effective_coefficient() -> None:
    np.testing.assert_allclose(coefficients("gmpo", 1.0), [0.3, 0.7, 0.9, 1, 1.1, 1.3, 0, 0], rtol=1e-12)
    falling = [0, 0.7, 0.9, 1, 1.1, 1.3, 2, 4]  # e^-0.4 = 0.67
    np.testing.assert_allclose(coefficients("gmpo", -1.0), -np.array(falling), rtol=1e-12)


def test_one_token_is_grpo_clipped_in_log_space() -> None:
    """1 - low = e^-0.3 and 1 + high = e^0.2."""
    sample = ragged(0, width=1, equal_lengths=True)
    ours = tokenpo.method("gmpo", low=0.3, high=0.2)
    close(run(ours, sample), run(tokenpo.method("grpo", low=1 - np.exp(-0.3), high=np.expm1(0.2)), sample), rtol=1e-12)


def test_without_clip_it_is_gspo_without_clip() -> None:
    ours = run(tokenpo.method("gmpo", low=700.0, high=700.0), ragged(0))
    close(ours, run(tokenpo.method("gspo", low=1.0, high=1e9), ragged(0)), rtol=1e-12)


def test_what_has_no_advantage_is_not_called_clipped() -> None:
    """Rewards 2, 1, 0: e and 1/4 lie outside e^±0.4 on the side of their advantage; that of the middle row has none."""
    seen = run(tokenpo.method("gmpo"), by_hand([[1.21, np.e], [np.e], [4, 0.25]], [2, 1, 0], [0, 0, 0]))
    np.testing.assert_array_equal(seen.terms["clipped"], [[0, 1], [0, 0], [0, 1]])

"""EDGE-GRPO against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run

OPTIONS = [{}, {"low": 0.1, "high": 0.4}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("edge_grpo", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). Mean entropies 1, 2, 6, their mean 3: A = 3 a, 0, -a / 2.

    Row 0: 1.1 and 1.5 clipped at 1.2. Row 2: 1.
    """
    a = 1 / (1 + 1e-6)
    entropy = [[0.5, 1.5], [2], [6]]
    got = run(tokenpo.method("edge_grpo"), by_hand([[1.1, 1.5], [1.3], [1]], [2, 1, 0], [0, 0, 0], old_entropy=entropy))
    assert got.value == pytest.approx(-(1.15 * 3 - 0.5) * a / 3, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.65, 0], [0, 0], [0.5, 0]]) * a / 3, rtol=1e-12)


def test_equal_entropies_leave_grpo() -> None:
    sample = ragged(0)
    sample = sample.but(old_entropy=np.where(sample.mask, 0.7, 0.0))
    close(run(tokenpo.method("edge_grpo"), sample), run(tokenpo.method("grpo"), sample), rtol=1e-12)


@pytest.mark.parametrize("entropy", [5e-9, 0.0, -2e-8])
def test_entropies_next_to_zero_are_equal_too(entropy: float) -> None:
    """-2e-8 is what rounding in another engine may leave."""
    sample = ragged(0)
    sample = sample.but(old_entropy=np.where(sample.mask, entropy, 0.0))
    close(run(tokenpo.method("edge_grpo"), sample), run(tokenpo.method("grpo"), sample), rtol=1e-12)

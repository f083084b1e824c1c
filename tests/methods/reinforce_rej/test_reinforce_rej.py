"""Reinforce-Rej against its oracle, by hand, and its reduction."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run
from tokenpo.core.parts import SoftOverlong

OPTIONS = [{}, {"low": 0.1, "high": 0.4}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("reinforce_rej", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """Rewards 1, -1 and an all-right pair that is rejected: 1.1, 1.5 clipped at 1.2; -2. Five tokens are counted."""
    got = run(tokenpo.method("reinforce_rej"), by_hand([[1.1, 1.5], [2], [1], [1]], [1, -1, 1, 1], [0, 0, 1, 1]))
    assert got.value == pytest.approx(-(2.3 - 2) / 5, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.1, 0], [2, 0], [0, 0], [0, 0]]) / 5, rtol=1e-12)


def test_on_mixed_groups_of_rewards_from_zero_up_it_is_raft_pp() -> None:
    sample = ragged(0)
    sample = sample.rows(np.flatnonzero(np.isin(sample.group, [7, 2, 30, 0]) & sample.mask.any(1)))
    close(run(tokenpo.method("reinforce_rej"), sample), run(tokenpo.method("raft_pp"), sample), rtol=1e-12)


def test_shaping_makes_no_group_mixed() -> None:
    """All right, and all wrong, one of each half too long: nothing to learn, whatever they pay."""
    sample = by_hand([[1, 1, 1], [1], [1, 1, 1], [1]], [1, 1, 0, 0], [0, 0, 1, 1])
    objective = dataclasses.replace(tokenpo.method("reinforce_rej"), shaping=(SoftOverlong(4, 2),))
    assert not run(objective, sample).gradient.any()
    mixed = run(objective, by_hand([[1, 1, 1], [1]], [1, 0], [0, 0]))
    np.testing.assert_allclose(mixed.gradient, [[-0.5 / 4] * 3, [0, 0, 0]], rtol=1e-12)

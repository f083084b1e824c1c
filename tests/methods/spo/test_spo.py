"""SPO-chain against its oracle, by hand, and its reduction to VinePPO."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, ragged, run
from tokenpo.core.parts import Continuations, Improbable


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"below": 0.3}, {"low": 0.1, "high": 0.4}])
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("spo", ragged(seed), **options)


def test_by_hand() -> None:
    """Old probabilities 0.25 and 0.95: the second token of each row is left out. Of the gains 0.6 and -0.2 of the
    others the mean is 0.2, the variance 0.32: A = ±a, a = 0.4 / sqrt(0.32 + 1e-8). J is the mean over these two."""
    a = 0.4 / np.sqrt(0.32 + 1e-8)
    old = np.log([[0.25, 0.95], [0.25, 0.95]])
    sample = by_hand([[1.1, 1.0], [0.9, 1.0]], [1, 0], [0, 0], gain=[[0.6, 5.0], [-0.2, 5.0]])
    sample = sample.but(old_logprob=old, logprob=old + np.log([[1.1, 1.0], [0.9, 1.0]]))
    got = run(tokenpo.method("spo"), sample)
    assert got.value == pytest.approx(-(1.1 - 0.9) * a / 2, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.1, 0], [0.9, 0]]) * a / 2, rtol=1e-12)


def test_with_all_tokens_improbable_it_is_vineppos_loss() -> None:
    sample = ragged(1)
    close(run(tokenpo.method("spo", below=1.0), sample), run(tokenpo.method("vineppo"), sample), rtol=1e-12)


def test_what_is_drawn() -> None:
    assert tokenpo.method("spo", interval=2, below=0.5).continuations == Continuations(Improbable(2, 0.5), 9)


def test_obeys_the_laws() -> None:
    tokenpo.check_method(tokenpo.method("spo"))

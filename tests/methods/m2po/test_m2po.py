"""M2PO by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, outcome, ragged, run


def test_by_hand() -> None:
    """Right at e^0.1, e^0.2, e^1 and wrong at e^-0.4 and, coming back, e^3: of the four that are pushed on, v = 0.01,
    0.04, 0.16, 1 has mean 0.3025. Cut to the third: (0.05 + 2 · 0.16) / 4 = 0.0925, to the second: 0.0325. With a
    budget of 0.06 the third is the first too many: τ = 0.2, bounds e^∓0.2, of which low and high leave them as they
    are. The bound's own token is beyond it."""
    sample = by_hand([np.exp([0.1, 0.2, 1.0]), np.exp([-0.4, 3.0])], [1, 0])
    got = outcome("m2po", sample, budget=0.06, low=0.1, high=0.1)
    assert got.terms["high"][sample.mask] == pytest.approx(np.exp(0.2), rel=1e-10)
    assert got.terms["low"][sample.mask] == pytest.approx(np.exp(-0.2), rel=1e-10)
    assert got.terms["clipped"].tolist() == [[False, True, True], [True, False, False]]
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    kept = np.array([[np.exp(0.1), 0, 0], [0, -np.exp(3.0), 0]])
    np.testing.assert_allclose(got.gradient, -a * kept / 5, rtol=1e-12)
    # The least bounds are wider: e^-0.2 = 0.82 and e^0.2 = 1.22 become 0.7 and 1.5.
    wide = outcome("m2po", sample, budget=0.06)
    assert wide.terms["high"][sample.mask] == pytest.approx(1.5, rel=1e-12)
    assert wide.terms["low"][sample.mask] == pytest.approx(0.7, rel=1e-12)
    # Within the budget nothing is clipped.
    assert not outcome("m2po", sample, budget=0.31).terms["clipped"].any()


def test_the_whole_step_sets_the_bound() -> None:
    objective = tokenpo.method("m2po")
    assert objective.scope == "batch"
    sample = ragged(2)
    halves = run(objective, sample, pieces=[slice(0, 9), slice(9, None)])
    close(halves, run(objective, sample), rtol=1e-12)

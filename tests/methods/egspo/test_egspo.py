"""EGSPO by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import assemble, by_hand, moves, ragged, run, tensors


@pytest.mark.parametrize("curve", ["constant", "chord"])
def test_by_hand(curve: str) -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). Entropies 1 ... 5: the 0.8 quantile is round(3.2) = the
    fourth smallest: 4 and 5 learn in full. Of row 0 that is 1.1, of row 2 it is 2; 1 and 1.2 are damped.

    p = r / 4. Constant: half. Chord: 2 p (1 - p) = 2 · 0.25 · 0.75 = 0.375 and 2 · 0.3 · 0.7 = 0.42.
    """
    a = 1 / (1 + 1e-6)
    up, down = (0.5, 0.5) if curve == "constant" else (0.375, 0.42)
    sample = by_hand([[1.1, 1.0], [1.3], [1.2, 2.0]], [2, 1, 0], old_entropy=[[5.0, 1], [3], [2, 4]])
    moves(
        "egspo", sample, -(1.1 + up - 1.2 * down - 2), [[-1.1, -up], [0, 0], [1.2 * down, 2]], unit=a / 5, curve=curve
    )


def test_the_chord_is_the_attenuation_where_the_policy_is_undecided_and_0_where_it_is_sure() -> None:
    """p = 1/2, 1 (a little more, by rounding) and 1/4, 4 p (1 - p) = 3/4; the fourth has the highest entropy."""
    sample = by_hand([[1.0] * 4], [0], old_entropy=[[0.0, 0, 0, 1]])
    logprob = np.array([[np.log(0.5), 1e-9, np.log(0.25), np.log(0.25)]])
    objective = tokenpo.method("egspo", curve="chord", attenuation=0.4, quantile=1.0)
    got = run(objective, sample.but(logprob=logprob, old_logprob=logprob), advantage=np.ones((1, 4)))
    np.testing.assert_allclose(got.terms["weight"], [[0.4, 0, 0.3, 1]], rtol=1e-14)


def test_the_weight_has_no_gradient() -> None:
    """Wherever it stands: in a ratio or a penalty too."""
    objective = tokenpo.method("egspo", curve="chord")
    step = assemble(objective, tensors(ragged(0)))
    assert step.batch.policy.logprob.requires_grad
    assert not objective.weights[0].of_batch(step.batch).requires_grad

"""REAL by hand, and what is special about it."""

import dataclasses

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, module, of, outcome, ragged, run
from tokenpo.core.parts import SoftOverlong


def test_by_hand() -> None:
    """tau 1; s = log 2 right; log 2 on average (4, 1) and 0 wrong. L = log(1 + 1/2) + log(1 + 2 + 1) = log 6, and the
    other group, of equal rewards, counts: L/2. Slopes: right −(1/2)/(3/2) = −1/3, wrong 2/4 and 1/4, by tokens."""
    sample = by_hand([[2.0], [4.0, 1.0], [1.0], [3.0]], [1, 0, 0, 1], [0, 0, 0, 1])
    got = outcome("real", sample, tau=1.0)
    loss = module("real").label_loss
    assert loss(sample, 1.0)[0] == pytest.approx(np.log(6) / 2, rel=1e-12)
    np.testing.assert_allclose(
        got.gradient, np.array([[-1 / 3, 0], [1 / 4, 1 / 4], [1 / 4, 0], [0, 0]]) / 2, rtol=1e-12
    )


def test_the_gradient_is_that_of_the_loss() -> None:
    """Central differences of L, which the value of the method is not."""
    sample, loss = ragged(3, width=5), module("real").label_loss
    gradient, step = outcome("real", sample).gradient, 1e-6
    for i, t in zip(*np.nonzero(sample.mask), strict=True):
        ends = []
        for sign in (1, -1):
            lp = sample.logprob.copy()
            lp[i, t] += sign * step
            ends.append(loss(sample.but(logprob=lp), 0.5)[0])
        assert gradient[i, t] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-9)


def test_a_response_at_the_mean_is_wrong() -> None:
    """Rewards 1, 1/2, 0: the middle one, whose advantage is 0, is pushed down and not left out."""
    got = outcome("real", by_hand([[1.0], [1.0], [1.0]], [1, 0.5, 0]))
    np.testing.assert_allclose(got.gradient[:, 0], [-1, 2 / 3, 2 / 3], rtol=1e-12)
    assert got.terms["advantage"][:, 0].tolist() == [1, -1, -1]


def test_shaping_may_change_a_label() -> None:
    """Two tokens more than 1, over a cache of 2: the right answer of three tokens has 0, as the other has."""
    objective = dataclasses.replace(tokenpo.method("real"), shaping=(SoftOverlong(3, 2),))
    got = run(objective, by_hand([[1, 1, 1], [1], [1]], [1, 0, 0.5]))
    assert got.terms["advantage"][:, 0].tolist() == [-1, -1, 1]


def test_any_split_of_the_step_adds_up_once_it_was_looked_at() -> None:
    objective, sample = tokenpo.method("real"), ragged(2)
    assert objective.scope == "batch"
    pieces = run(objective, sample, pieces=[slice(0, 4), slice(4, 12), slice(12, None)])
    close(pieces, run(objective, sample), rtol=1e-12)


def test_half_a_group_has_nothing_to_tell_apart() -> None:
    """The rewards of the whole group label it; an update on the right ones alone pushes nothing."""
    one = np.ones((2, 1))
    sample = of(one, [1, 1], [0, 0], logprob=-one, old_logprob=-one)
    got = outcome("real", sample, advantage=np.ones((2, 1)))
    assert got.value == 0 and not got.gradient.any()

"""Lopti by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, outcome, ragged, run, score

OPTIONS = [{}, {"a": 0.3, "eta": 0.5}, {"high_first": True, "beta": 0.3}, {"dual": 3.0, "beta": 0.0, "high": 0.5}]
OPTIONS += [{"beta": 0.3, "bounded_kl": True}]


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("options", OPTIONS)
def test_each_pass_is_its_oracle(part: int, options: dict) -> None:
    sample = ragged(0)
    pass_ = tokenpo.method("lopti", **options).split()[part]
    close(run(pass_, sample), score("lopti", sample, part=part, **options))


def test_passes_by_hand() -> None:
    """p_old = 1/4 on the first token of each row and 1/2 on the second: the first pass holds the first column.

    Rewards 1, 0: A = ±0.5 / (sqrt 0.5 + 1e-6), ratios 1.1 and 1, four tokens.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[1.1, 1.1], [1, 1]], [1, 0])
    shift = np.array([[0, np.log(2)], [0, np.log(2)]])
    sample = sample.but(old_logprob=sample.old_logprob + shift, logprob=sample.logprob + shift)
    first, second = tokenpo.method("lopti", beta=0.0).split()
    np.testing.assert_allclose(run(first, sample).gradient, np.array([[-1.1 * a, 0], [a, 0]]) / 4, rtol=1e-12)
    np.testing.assert_allclose(run(second, sample).gradient, np.array([[0, -1.1 * a], [0, a]]) / 4, rtol=1e-12)
    assert run(first, sample).value == pytest.approx(-0.1 * a / 4, rel=1e-12)


def test_a_token_at_the_threshold_is_probable() -> None:
    sample = by_hand([[1.0], [1.0]], [1, 0], p_old=0.5)
    first, second = tokenpo.method("lopti", eta=0.5, beta=0.0).split()
    assert not run(first, sample).gradient.any()
    assert run(second, sample).gradient.all()


def test_the_other_order_swaps_the_passes() -> None:
    low, high = (tokenpo.method("lopti", high_first=first).passes for first in (False, True))
    assert low == tuple(reversed(high))


def test_together_they_are_advantage_reweighting() -> None:
    sample = ragged(1)
    whole = outcome("adv_reweight", sample, a=0.3)
    parts = [run(part, sample) for part in tokenpo.method("lopti", a=0.3).split()]
    assert sum(part.value for part in parts) == pytest.approx(whole.value, rel=1e-12)
    np.testing.assert_allclose(sum(part.gradient for part in parts), whole.gradient, rtol=1e-12, atol=1e-17)

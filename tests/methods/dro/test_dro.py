"""DRO by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, moves, outcome, ragged, run


def test_by_hand() -> None:
    """Ratios e and 1/e, p_old = 1/4, beta 0.4: J = a lp − 0.2 · 1 and −a lp − 0.2; slopes a − 0.4 and −a + 0.4."""
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    got = moves("dro", by_hand([[np.e], [1 / np.e]], [1, 0]), None, [[-(a - 0.4) / 2], [-(0.4 - a) / 2]], beta=0.4)
    value = a * (np.log(0.25) + 1) - a * (np.log(0.25) - 1) - 0.4
    assert got.value == pytest.approx(-value / 2, rel=1e-12)


def test_the_push_ends_where_the_log_ratio_is_advantage_over_beta() -> None:
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[np.exp(a / 2)], [np.exp(-a / 2)]], [1, 0])
    np.testing.assert_allclose(outcome("dro", sample, beta=2.0).gradient, 0, atol=1e-15)


def test_without_the_square_it_is_reinforce_and_on_policy_it_has_its_gradient() -> None:
    sample = ragged(0)
    plain = tokenpo.method("dro", beta=0.0)
    assert plain.assumes_on_policy and not tokenpo.method("dro").assumes_on_policy
    np.testing.assert_allclose(
        outcome("dro", sample.on_policy()).gradient,
        outcome("dapo", sample.on_policy()).gradient, rtol=1e-12, atol=1e-17,
    )  # fmt: skip
    close(run(plain, sample.on_policy()), outcome("dro", sample.on_policy()))


def test_rows_without_an_advantage_are_held_too() -> None:
    assert not tokenpo.method("dro").follows_advantage

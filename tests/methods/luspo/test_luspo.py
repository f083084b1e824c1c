"""LUSPO by hand, and what is special about it."""

import dataclasses

import numpy as np
import pytest

from oracle_support import by_hand, close, moves, outcome, ragged


def test_by_hand() -> None:
    """A = a, 0, -a with a = 1 / (1 + 1e-6). s = sqrt(1.21 · 1) = 1.1; row 2: s = (0.5 · 2 · 8)^(1/3) = 2.

    J = (2 · 1.1 a - 3 · 2 a) / 3; every token moves by s A / 3, whatever the length of its response.
    """
    a = 1 / (1 + 1e-6)
    moves(
        "luspo",
        by_hand([[1.21, 1.0], [1.3], [0.5, 2.0, 8.0]], [2, 1, 0]),
        -(2.2 - 6),
        [[-1.1, -1.1, 0], [0, 0, 0], [2, 2, 2]],
        unit=a / 3,
    )


def test_the_clip_is_that_of_the_response() -> None:
    """s = 1.5 at A = a is clipped to 1.2, s = 0.5 at -a to 0.8; lengths 1 and 2: J = (1.2 - 1.6) a / 2, all still."""
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    got = outcome("luspo", by_hand([[1.5], [0.25, 1.0]], [1, 0]))
    assert got.value == pytest.approx(0.4 * a / 2, rel=1e-12)
    assert not got.gradient.any()


def test_with_equal_lengths_it_is_that_many_times_gspo() -> None:
    sample = ragged(0, width=7, equal_lengths=True)
    ours, gspo = (outcome(name, sample, low=0.1, high=0.2) for name in ("luspo", "gspo"))
    close(ours, dataclasses.replace(gspo, value=7 * gspo.value, gradient=7 * gspo.gradient), rtol=1e-12)


def test_on_policy_it_moves_like_dapo() -> None:
    sample = ragged(2).on_policy()
    ours, dapo = outcome("luspo", sample), outcome("dapo", sample)
    scale = sample.mask.sum() / sample.mask.any(1).sum()
    np.testing.assert_allclose(ours.gradient, scale * dapo.gradient, rtol=1e-12, atol=1e-17)

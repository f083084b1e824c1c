"""THR by hand, and what is special about it."""

import numpy as np
import pytest

import tokenpo
from oracle_support import Sample, by_hand, outcome


def _three() -> Sample:
    """One right and two wrong responses; the mean influence of the right one is (3 - 2.5 + 1) / 3 = 1/2."""
    influence = [[3, -2.5, 1], [0.5, 2], [-2, 0]]
    ones = [[1.0] * len(row) for row in influence]
    return by_hand(ones, [1, 0, 0], [4, 4, 4], influence=influence)


def _weights(sample: Sample, **options) -> list[list[float]]:
    weight = outcome("thr", sample, **options).terms["weight"]
    return [row[kept].tolist() for row, kept in zip(weight, sample.mask, strict=True)]


def test_by_hand() -> None:
    """THR is 3, -2.5, 1 | -0.5, -2 | 2, 0; beyond 1/2 are all but -0.5 (not strictly) and 0. p = 0.1."""
    right, *wrong = _weights(_three())
    assert right == pytest.approx([1.1, 0.9, 1.1], rel=1e-12)
    assert wrong == [pytest.approx([0, 0.9], rel=1e-12), pytest.approx([1.1, 0], rel=1e-12)]


def test_without_the_mask_every_token_counts() -> None:
    """p = -0.5 turns the lean; a token without any influence keeps 1."""
    assert _weights(_three(), p=-0.5, mask=False) == [[0.5, 1.5, 0.5], [1.5, 1.5], [0.5, 1]]


def test_gradient_by_hand() -> None:
    """A = 2 a, -a, -a with a = 1/3 / (sqrt(1/3) + 1e-6), as for any one of three. At ratio 1: -w A / (|o| · 3)."""
    a = 1 / 3 / (np.sqrt(1 / 3) + 1e-6)
    expected = -a / 3 * np.array([[2.2 / 3, 1.8 / 3, 2.2 / 3], [0, -0.45, 0], [-0.55, 0, 0]])
    np.testing.assert_allclose(outcome("thr", _three()).gradient, expected, rtol=1e-12)


def test_the_weakest_right_response_of_the_group_sets_the_threshold() -> None:
    """Means 4 and (3 - 1) / 2 = 1: of the wrong 0.9 and 1.5 only the second lies beyond. A group of its own does not
    lower that, and one of equal rewards keeps 1."""
    influence = [[4], [3, -1], [0.9, 1.5], [0.1], [0.01], [7], [0]]
    ones = [[1.0] * len(row) for row in influence]
    sample = by_hand(ones, [1, 1, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 2, 2], influence=influence)
    assert _weights(sample, p=0.5) == [[1.5], [1.5, 0], [0, 0.5], [0], [0], [1], [1]]


@pytest.mark.parametrize("p", [-1.0, 1.0, 1.5])
def test_the_lean_keeps_the_sign(p: float) -> None:
    with pytest.raises(
        tokenpo.TokenPOError, match=rf"thr: p is {p}, expected a number in \(-1, 1\), or advantages would"
    ):
        tokenpo.method("thr", p=p)

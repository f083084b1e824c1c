"""Aggregates: the coefficient of a token, with denominators from outside."""

from __future__ import annotations

import torch

from tokenpo import Totals
from tokenpo.core.parts import ConstantLength, SequenceMean, TokenMean

MASK = torch.tensor([[True, True, True, True], [True, False, False, False], [False, False, False, False]])
TOTALS = Totals(tokens=20, sequences=4, length=8)  # of a larger step, of which MASK is a part


def test_token_mean() -> None:
    assert TokenMean()(MASK, TOTALS) == 1 / 20


def test_sequence_mean() -> None:
    """1 / (4 · 4) and 1 / (1 · 4); a row without tokens is divided by 1, not by 0."""
    assert SequenceMean()(MASK, TOTALS).tolist() == [[1 / 16], [1 / 4], [1 / 4]]


def test_sequence_mean_is_float64() -> None:
    """1/3 of 1/3 rounded once, when the loss takes it to its own dtype."""
    assert SequenceMean()(MASK, TOTALS).dtype == torch.float64


def test_constant_length() -> None:
    """1 / (8 · 4) from the step, 1 / (5 · 4) from the option."""
    assert ConstantLength()(MASK, TOTALS) == 1 / 32
    assert ConstantLength(5)(MASK, TOTALS) == 1 / 20


def test_coefficients_of_the_whole_step_sum_to_one() -> None:
    whole = Totals(tokens=5, sequences=2, length=4)
    assert TokenMean()(MASK, whole) * 5 == 1
    assert float((SequenceMean()(MASK, whole) * MASK).sum()) == 1

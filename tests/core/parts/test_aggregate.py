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


def test_constant_length() -> None:
    """1 / (8 · 4) from the step, 1 / (5 · 4) from the option."""
    assert ConstantLength()(MASK, TOTALS) == 1 / 32
    assert ConstantLength(5)(MASK, TOTALS) == 1 / 20

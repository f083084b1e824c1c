"""Selections by hand, and the weights that keep, drop and renormalise."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from tokenpo import Objective, Totals
from tokenpo.core.parts import TokenMean, Unclipped
from tokenpo.core.parts.credit import GroupAdvantage
from tokenpo.core.parts.part import BatchSignal, Signal
from tokenpo.core.parts.selection import CurrentEntropyQuantile, HighInBatch, HighInResponse, OldEntropyQuantile
from tokenpo.core.parts.weights import Drop, Keep, NormalisedWeight, RowNormalised

ONES = [[1.0] * 4, [1.0] * 3]
ENTROPY = [[0.4, 0.1, 0.3, 0.2], [9.0, 8.0, 7.0]]
OTHER = [[0.1, 0.2, 0.3, 0.4], [7.0, 8.0, 9.0]]


@dataclass(frozen=True)
class Marked(Signal):
    """Marks the first tokens, by another number than 1."""

    def __call__(self, rollouts):
        return 3.0 * (torch.arange(rollouts.mask.shape[1]) == 0).expand(rollouts.mask.shape)


@dataclass(frozen=True)
class CurrentlyAbove(BatchSignal):
    """Marks the tokens above a mean that another signal holds."""

    mean: CurrentEntropyQuantile

    def __call__(self, batch, trust, generator):
        return (batch.policy.entropy > batch.signal(self.mean)).double()


def test_response_quantile_is_each_rows_own_and_strict(batch) -> None:
    """Rank round(0.6 · 3) = 2 of four: above 0.3. Rank round(0.6 · 2) = 1 of three: above 8. Padding is never high."""
    step = batch(ONES, [1.0, 1.0], old_entropy=ENTROPY, entropy=OTHER)
    assert HighInResponse(0.6)(step).tolist() == [[True, False, False, False], [True, False, False, False]]
    assert HighInResponse(0.6, current=True)(step).tolist() == [
        [False, False, False, True],
        [False, False, True, False],
    ]
    assert HighInResponse(0.6).reads == {"old_entropy"} and HighInResponse(0.6, current=True).reads == {"entropy"}
    padded = batch([[1.0], [1.0, 1.0]], [1.0, 1.0], old_entropy=[[0.0], [0.0, 0.0]])
    assert not HighInResponse(0.0)(padded).any()


def test_batch_quantile_includes_ties(batch) -> None:
    """Rank round(0.8 · 6) = 5 of seven: from 8 on."""
    step = batch(ONES, [1.0, 1.0], old_entropy=ENTROPY, entropy=OTHER)
    old, current = OldEntropyQuantile(0.8), CurrentEntropyQuantile(0.8)
    seen = step.with_signal(old, old(step.rollouts)).with_signal(current, current(step, None, None))
    assert HighInBatch(old)(seen).tolist() == [[False] * 4, [True, True, False, False]]
    assert HighInBatch(current)(seen).tolist() == [[False] * 4, [False, True, True, False]]


def test_keep_and_drop_take_selections_and_signals(batch) -> None:
    step = batch(ONES, [1.0, 1.0], old_entropy=ENTROPY)
    step = step.with_signal(Marked(), Marked()(step.rollouts))
    kept = [[1, 0, 0, 0], [1, 0, 0, 0]]
    for selection in (Marked(), HighInResponse(0.6)):
        assert Keep(selection).of_batch(step).tolist() == kept
        assert Drop(selection).of_batch(step).tolist() == [[1 - x for x in row] for row in kept]
    assert Keep(Marked()).of_batch(step).dtype == torch.float64


def test_denominators_shrink(batch) -> None:
    """Two of seven tokens are kept: over the step each weighs 7/2; one of four and one of three: 4 and 3."""
    step = batch(ONES, [1.0, 1.0])
    step = step.with_signal(Marked(), Marked()(step.rollouts))
    weight = NormalisedWeight.of(Keep(Marked()))
    seen = step.with_signal(weight.mean, weight.mean(step, None, None))
    assert weight.of_batch(seen)[:, 0].tolist() == pytest.approx([3.5, 3.5], rel=1e-15)
    assert RowNormalised(Keep(Marked())).of_batch(step)[:, 0].tolist() == pytest.approx([4, 3], rel=1e-15)
    assert not weight.of_batch(seen)[:, 1:].any()


def test_signals_may_hold_signals(batch) -> None:
    """The mean of a weight over a signal over a signal: each is observed after those it holds."""
    step = batch(ONES, [1.0, -1.0], entropy=OTHER)
    weight = NormalisedWeight.of(Keep(CurrentlyAbove(CurrentEntropyQuantile(0.5))))
    objective = Objective(GroupAdvantage(), Unclipped(), TokenMean(), weights=(weight,), name="nested")
    loss = objective.loss(objective.observe(step), Totals.of(step.rollouts))
    assert loss.terms["weight"][1, :3].tolist() == pytest.approx([7 / 3] * 3, rel=1e-15)  # above 0.4: three of seven

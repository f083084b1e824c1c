"""Aggregates: the coefficient of a token, with denominators from outside."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import tokenpo
from tokenpo import Batch, Policy, Rollouts, Totals, check_method
from tokenpo.core.parts import Aggregate, ConstantLength, PromptMean, SequenceMean, TokenMean, TokenSum
from tokenpo.core.parts.aggregate import PerGroupToken

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


def test_token_sum_grows_with_the_batch() -> None:
    assert TokenSum()(MASK, TOTALS) == 1


def test_prompt_mean() -> None:
    """Two groups of two responses with 5 and 2 tokens: 1 / (2 · 5) and 1 / (2 · 2) for a step of both prompts; a step
    of the first alone gives 1 / 5. A row without tokens is in no group."""
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
    reward, group = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([4, 4, 7, 7])
    rollouts = Rollouts(mask, reward, group, torch.full(mask.shape, -1.0))
    # three responses of two prompts: 3/2 of each
    share = PerGroupToken()(rollouts)
    torch.testing.assert_close(share[:3, 0], torch.tensor([1.5 / 5, 1.5 / 5, 1.5], dtype=torch.float64))
    objective = dataclasses.replace(tokenpo.method("grpo"), aggregate=PromptMean())
    even = Rollouts(mask[[0, 1, 2, 2]], reward, group, torch.full(mask.shape, -1.0))
    credit = objective.prepare(even)
    for rows, prompts in ((slice(0, 4), 2), (slice(0, 2), 1)):
        step = even.rows(rows)
        batch = Batch(step, credit.rows(rows), Policy(step.old_logprob))
        coefficient = objective.loss(batch, Totals.of(step)).terms["coefficient"]
        wanted = step.mask / torch.tensor([5.0, 5.0, 2.0, 2.0])[rows, None] / prompts
        torch.testing.assert_close(coefficient, wanted)
        assert float(coefficient.sum()) == pytest.approx(1)


@pytest.mark.parametrize("aggregate", [PromptMean(), TokenSum()])
def test_the_laws_hold(aggregate: Aggregate) -> None:
    check_method(dataclasses.replace(tokenpo.method("grpo"), name="mine", aggregate=aggregate))

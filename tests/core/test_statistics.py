"""Statistics of several ranks put together are those of one that saw everything."""

from __future__ import annotations

import pytest
import torch

import tokenpo
from oracle_support import ragged
from tokenpo.core.statistics import Statistics


def _parts() -> tuple[tokenpo.Batch, tokenpo.Objective, tokenpo.Totals]:
    sample = ragged(0).alive()
    facts = {
        "mask": torch.tensor(sample.mask),
        "reward": torch.tensor(sample.reward),
        "group": torch.tensor(sample.group),
        "old_logprob": torch.tensor(sample.old_logprob),
    }
    rollouts, objective = tokenpo.Rollouts(**facts), tokenpo.method("grpo")
    policy = tokenpo.Policy(logprob=torch.tensor(sample.logprob))
    batch = tokenpo.Batch(rollouts=rollouts, credit=objective.prepare(rollouts), policy=policy)
    return batch, objective, tokenpo.Totals.of(rollouts)


def _seen(rows: list[slice]) -> Statistics:
    batch, objective, totals = _parts()
    found = Statistics()
    found.add_minibatch(totals)
    for part in rows:
        piece = batch.rows(part)
        found.add(piece, objective.loss(piece, totals))
    return found


def _together(one: Statistics, other: Statistics) -> Statistics:
    sent: list[torch.Tensor] = []
    other.across(lambda x: sent.append(x) or x, lambda x: sent.append(x) or x, "cpu")
    return one.across(lambda x: x + sent[0], lambda x: torch.maximum(x, sent[1]), "cpu")


@pytest.mark.parametrize("rows", [([slice(0, 7)], [slice(7, 20)]), ([slice(0, 20)], [])])
def test_two_ranks_are_one(rows: tuple[list[slice], list[slice]]) -> None:
    """A rank without a row to evaluate adds nothing."""
    whole = _seen([slice(0, 20)]).summary()
    assert whole["clip_fraction"] > 0
    found = _together(_seen(rows[0]), _seen(rows[1])).summary()
    assert found == pytest.approx(whole, rel=1e-6, nan_ok=True)


def test_nobody_saw_a_token() -> None:
    assert _together(_seen([]), _seen([])).summary() == pytest.approx(_seen([]).summary(), nan_ok=True)

"""An update that takes rows twice, as a host does that repeats a rollout batch within one optimiser step."""

from __future__ import annotations

import math

import pytest
import torch

import tokenpo
from oracle_support import ragged, tensors
from tokenpo.core.learner import Learner, Update


def begun(name: str, rows: list[int], **options: float) -> tuple[Update, tokenpo.Policy]:
    """An update on these rows of a rollout batch, and what the policy says of all of them."""
    field = tensors(ragged(3).alive())
    facts = {name: field[name] for name in ("mask", "reward", "group", "old_logprob")}
    step = Learner(tokenpo.method(name, **options), length=8).begin(tokenpo.Rollouts(**facts))
    return step.update(torch.tensor(rows)), tokenpo.Policy(field["logprob"])


@pytest.mark.parametrize("method", ["grpo", "clip_cov", "kl_cov"])
def test_micro_batches_of_repeated_rows_add_up(method: str) -> None:
    """Rows 0 to 5 and 2 to 4 again: the loss of all nine is that of the six and of the three."""
    options = {"grpo": {}, "kl_cov": {"fraction": 0.4}, "clip_cov": {"fraction": 0.4, "cov_low": -math.inf}}[method]
    update, policy = begun(method, [0, 1, 2, 3, 4, 5, 4, 3, 2], **options)
    assert update.rows.tolist() == [0, 1, 2, 2, 3, 3, 4, 4, 5]
    update.observe(policy.rows(update.rows))
    whole = update.loss(policy.rows(update.rows))
    parts = [[5, 0, 4, 1, 3, 2], [2, 4, 3]]
    values = [update.loss(policy.rows(torch.tensor(rows)), torch.tensor(rows)).value for rows in parts]
    torch.testing.assert_close(sum(values), whole.value)
    selected = [signal for signal in update.credit.signals.values() if method != "grpo"]
    assert len(selected) == (method != "grpo")
    for signal in selected:
        assert (signal[2:7:2] == signal[3:8:2]).all() and 0 < signal.double().sum() < update.rollouts.mask.sum()

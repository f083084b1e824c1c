"""Rollout correction by hand: what the bounds do to single tokens and to whole responses."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import ragged, run
from tokenpo import MissingInput, TokenPOError
from tokenpo.core.parts import RolloutCorrection

LOG = torch.tensor([[0.5, 3.0, 1.0], [2.0, 0.25, 9.0]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True, True], [True, True, False]])


def _weights(**options) -> list[list[float]]:
    """Of tokens that the old policy finds exp(LOG) times as likely as the sampler did."""
    sampled = torch.full((2, 3), -3.0, dtype=torch.float64)
    rollouts = tokenpo.Rollouts(
        MASK, torch.zeros(2), torch.tensor([0, 0]), (sampled + LOG).masked_fill(~MASK, torch.nan),
        rollout_logprob=sampled.masked_fill(~MASK, torch.nan),
    )  # fmt: skip
    objective = dataclasses.replace(tokenpo.method("gpg"), weights=(RolloutCorrection(**options),))
    credit = objective.prepare(rollouts)
    batch = tokenpo.Batch(rollouts, credit, tokenpo.Policy(sampled))
    weight = objective.loss(batch, tokenpo.Totals.of(rollouts)).terms["weight"]
    return [row[kept].tolist() for row, kept in zip(weight, MASK, strict=True)]


def test_tokens_are_clamped() -> None:
    assert _weights() == [pytest.approx([0.5, 2, 1]), pytest.approx([2, 0.25])]
    assert _weights(cap=2.5, floor=0.5) == [pytest.approx([0.5, 2.5, 1]), pytest.approx([2, 0.5])]


def test_tokens_out_of_bounds_are_dropped() -> None:
    assert _weights(mask=True) == [pytest.approx([0.5, 0, 1]), pytest.approx([2, 0.25])]
    assert _weights(mask=True, cap=3.5, floor=0.4) == [pytest.approx([0.5, 3, 1]), pytest.approx([2, 0])]


def test_responses_weigh_the_product_of_their_tokens() -> None:
    """0.5 · 3 · 1 = 1.5 and 2 · 0.25 = 0.5."""
    assert _weights(sequence=True) == [pytest.approx([1.5] * 3), pytest.approx([0.5] * 2)]
    assert _weights(sequence=True, cap=1.2) == [pytest.approx([1.2] * 3), pytest.approx([0.5] * 2)]
    assert _weights(sequence=True, mask=True, cap=1.2) == [[0.0] * 3, pytest.approx([0.5] * 2)]
    assert _weights(sequence=True, mask=True, floor=0.6) == [pytest.approx([1.5] * 3), [0.0] * 2]


def test_long_responses_stay_finite() -> None:
    """400 tokens, each e times likelier than the sampler said, and each e times less likely."""
    sampled = torch.full((2, 400), -3.0, dtype=torch.float64)
    old = sampled + torch.tensor([[1.0], [-1.0]])
    rollouts = tokenpo.Rollouts(
        torch.ones(2, 400, dtype=torch.bool), torch.zeros(2), torch.tensor([0, 0]), old, rollout_logprob=sampled
    )
    batch = tokenpo.Batch(rollouts, tokenpo.Credit(torch.zeros_like(old)), tokenpo.Policy(old))
    weight = RolloutCorrection(sequence=True, cap=1e300).of_batch(batch)
    assert weight[:, 0].tolist() == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-12)


@pytest.mark.parametrize("name", ["grpo", "gspo", "hapo", "tepo", "gtpo", "gpg"])
def test_it_goes_with_any_method(name: str) -> None:
    """Each token's gradient is multiplied; where sampler and old policy agree nothing changes."""
    plain = tokenpo.method(name, **({"beta": 0.0} if name == "tepo" else {}))
    corrected = dataclasses.replace(plain, weights=(*plain.weights, RolloutCorrection()))
    sample = ragged(0)
    same = sample.but(rollout_logprob=sample.old_logprob)
    np.testing.assert_array_equal(run(corrected, same).gradient, run(plain, same).gradient)
    if name == "gspo":
        return  # its tokens share one gradient
    weight = np.minimum(np.exp(sample.old_logprob - sample.rollout_logprob), 2)
    expected = run(plain, sample).gradient * weight
    np.testing.assert_allclose(run(corrected, sample).gradient, expected, rtol=1e-12, atol=1e-17)
    tokenpo.check_method(corrected)


def test_it_needs_the_samplers_log_probs() -> None:
    objective = dataclasses.replace(tokenpo.method("grpo"), weights=(RolloutCorrection(),))
    with pytest.raises(MissingInput, match="grpo needs rollout_logprob"):
        run(objective, ragged(0), inputs=())


@pytest.mark.parametrize(
    "bounds", [{"cap": 0.9}, {"floor": 1.1}, {"floor": -0.1}, {"cap": math.inf}, {"cap": math.nan}]
)
def test_bounds_must_hold_one(bounds: dict[str, float]) -> None:
    ((name, value),) = bounds.items()
    allowed = {"cap": "a finite number >= 1", "floor": r"a number in \[0, 1\]"}[name]
    with pytest.raises(TokenPOError, match=f"^RolloutCorrection: {name} is {value}, expected {allowed}$"):
        RolloutCorrection(**bounds)


def test_bounds_of_one_are_allowed() -> None:
    assert _weights(cap=1.0, floor=1.0) == [[1.0] * 3, [1.0] * 2]

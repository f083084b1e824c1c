"""The parts that belong to one paper, each alone and by hand: HAPO's and TEPO's, on their edges."""

from __future__ import annotations

import pytest
import torch

import tokenpo
from tokenpo.core.parts import K1, K2, K3, AbsoluteLogRatio, Estimator, OldEntropyScore, StraightThrough
from tokenpo.core.types import Trust
from tokenpo.methods.hapo import Redistribution, TokenGroupAdvantage
from tokenpo.methods.tepo import MaskedKl, StepSign

SCORE = OldEntropyScore()


def _advantage(stage: TokenGroupAdvantage, rollouts: tokenpo.Rollouts) -> list[float]:
    return stage(rollouts, torch.zeros_like(rollouts.reward))[:, 0].tolist()


def test_the_fallback_begins_at_its_limit(rollouts) -> None:
    """Rewards 1 and 0 of equal length: ±1 exactly. A limit of 1 takes GRPO's ±sqrt(1/2), one above does not.

    The other group, 1 over one token and 0 over three with its ±sqrt(3) and its lesser, keeps to itself.
    """
    facts = rollouts([2, 2, 1, 3], [1, 0, 1, 0], [0, 0, 5, 5])
    root, third = 0.5**0.5, 3**-0.5
    seen = _advantage(TokenGroupAdvantage(fallback=1.0, eps=0.0), facts)
    assert seen == pytest.approx([root, -root, root, -root], rel=1e-14)
    seen = _advantage(TokenGroupAdvantage(fallback=1.0001, eps=0.0), facts)
    assert seen == pytest.approx([1, -1, root, -root], rel=1e-14)
    seen = _advantage(TokenGroupAdvantage(fallback=2.0, eps=0.0), facts)
    assert seen == pytest.approx([1, -1, 3**0.5, -third], rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, -0.7])
def test_equal_rewards_give_exactly_zero(rollouts, reward: float, dtype: torch.dtype) -> None:
    facts = rollouts([1, 2, 4, 7, 3, 5, 6], [reward] * 7, [2] * 7, dtype)
    assert _advantage(TokenGroupAdvantage(), facts) == [0] * 7


def _scored(scores: list[float]) -> tokenpo.Batch:
    """One row of tokens with these entropy scores."""
    token = torch.zeros(1, len(scores), dtype=torch.float64)
    rollouts = tokenpo.Rollouts(token == 0, torch.zeros(1), torch.zeros(1, dtype=torch.long), token)
    credit = tokenpo.Credit(token, {SCORE: torch.tensor([scores], dtype=torch.float64)})
    return tokenpo.Batch(rollouts, credit, tokenpo.Policy(token))


def test_redistribution_by_hand() -> None:
    """Bounds 1/2 and 3/2: the neutral zone is the open interval (3/4, 5/4). beta 1/2.

    h = 1/2 acts outside it: 5/4; h = -1/2 inside it: 3/4; its ends are outside.
    """
    ratio = torch.tensor([[0.7, 0.75, 0.76, 1.24, 1.25, 1.3]], dtype=torch.float64)
    trust = Trust(ratio, ratio, 0.5, 1.5, ratio > 9)
    weight = Redistribution(0.5, SCORE)
    assert weight(_scored([0.5] * 6), trust).tolist() == [[1.25, 1.25, 1, 1, 1.25, 1.25]]
    assert weight(_scored([-0.5] * 6), trust).tolist() == [[1, 1, 0.75, 0.75, 1, 1]]
    assert weight(_scored([0.0] * 6), trust).tolist() == [[1] * 6]


@pytest.mark.parametrize(
    "estimator", [K1(), K2(), K3(), AbsoluteLogRatio(), StraightThrough(K1(), K3()), StraightThrough(K3(), K1())]
)
def test_a_masked_kl_is_idle_on_policy_where_its_estimator_has_no_gradient_there(estimator: Estimator) -> None:
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(estimator(x).sum(), x)
    assert estimator.stationary == (gradient.item() == 0)
    assert MaskedKl(3.0, StepSign(), estimator).idle_on_policy == estimator.stationary
    assert not MaskedKl(3.0, StepSign(), estimator, to_reference=True).idle_on_policy

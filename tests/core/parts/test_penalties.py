"""Divergence from the reference, by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from tokenpo.core.parts import (
    K1,
    K2,
    K3,
    AbsoluteLogRatio,
    EntropyBonus,
    ProbabilityWeight,
    ReferenceKl,
    StraightThrough,
)
from tokenpo.core.parts.weights import Affine

LN2 = math.log(2)


def _seen(penalty: ReferenceKl, batch) -> tuple[list[float], list[float]]:
    """One row at current probability 1/2, 1/4 against references 1/4, 1/2: x = lp_ref - lp = -ln 2, ln 2."""
    step = batch([[2.0, 1.0]], [1.0], old=0.25, ref_logprob=[[math.log(0.25), math.log(0.5)]])
    value = penalty(step, None)
    (gradient,) = torch.autograd.grad(value.sum(), step.policy.logprob)
    return value[0].tolist(), gradient[0].tolist()


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        # x = -ln 2, ln 2, and dx/dlp = -1
        (K1(), [LN2, -LN2], [1, 1]),
        (K2(), [LN2**2 / 2, LN2**2 / 2], [LN2, -LN2]),
        (K3(), [0.5 - 1 + LN2, 2 - 1 - LN2], [0.5, -1]),  # d k3/dx = eˣ − 1 = -1/2, 1
        (AbsoluteLogRatio(), [LN2, LN2], [1, -1]),
        # the value of the one, the gradient of the other
        (StraightThrough(), [0.5 - 1 + LN2, 2 - 1 - LN2], [LN2, -LN2]),
        (StraightThrough(K1()), [LN2, -LN2], [LN2, -LN2]),
        (StraightThrough(K2(), gradient=K3()), [LN2**2 / 2, LN2**2 / 2], [0.5, -1]),
    ],
)
def test_estimators_by_hand(batch, estimator, value: list[float], slope: list[float]) -> None:
    """beta = 3 multiplies value and gradient."""
    seen, gradient = _seen(ReferenceKl(3.0, estimator), batch)
    assert seen == pytest.approx([3 * x for x in value], rel=1e-14)
    assert gradient == pytest.approx([3 * x for x in slope], rel=1e-14)


def test_k3_is_the_default(batch) -> None:
    assert ReferenceKl(0.1) == ReferenceKl(0.1, K3())


def test_scale_multiplies_the_divergence(batch) -> None:
    """w = p = 1/2, 1/4, stopped: half and quarter of k3 and of its gradient."""
    seen, gradient = _seen(ReferenceKl(1.0, scale=ProbabilityWeight(Affine(1.0))), batch)
    assert seen == pytest.approx([(LN2 - 0.5) / 2, (1 - LN2) / 4], rel=1e-14)
    assert gradient == pytest.approx([0.25, -0.25], rel=1e-14)


def test_inside_multiplies_the_ratio(batch) -> None:
    """w = p: the ratio π_ref/π · w is 1/2 · 1/2 = 1/4 and 2 · 1/4 = 1/2; k3(r) = r - 1 - ln r, d/dlp = 1 - r."""
    seen, gradient = _seen(ReferenceKl(1.0, inside=ProbabilityWeight(Affine(1.0))), batch)
    assert seen == pytest.approx([0.25 - 1 + 2 * LN2, 0.5 - 1 + LN2], rel=1e-14)
    assert gradient == pytest.approx([0.75, 0.5], rel=1e-14)


def test_needs_the_reference_and_is_bounded(batch) -> None:
    assert ReferenceKl(0.1).reads == {"ref_logprob"}
    step = batch([[1.0]], [1.0], ref_logprob=[[-500.0]])
    assert ReferenceKl(1.0, K1())(step, None).item() == 20.0


def test_is_zero_on_padding(batch) -> None:
    step = batch([[2.0, 1.0], [3.0]], [1.0, 1.0], ref_logprob=[[-1.0, -1.0], [-1.0]])
    for estimator in (K1(), K2(), K3(), AbsoluteLogRatio()):
        assert ReferenceKl(1.0, estimator)(step, None)[1, 1] == 0


def test_entropy_bonus_by_hand(batch) -> None:
    """−0.1 · H, and a slope of −0.1 in H."""
    step = batch([[1.0, 1.0]], [1.0], old=0.25)
    entropy = torch.tensor([[0.5, 2.0]], dtype=torch.float64, requires_grad=True)
    step = dataclasses.replace(step, policy=dataclasses.replace(step.policy, entropy=entropy))
    bonus = EntropyBonus(0.1)
    value = bonus(step, None)
    (gradient,) = torch.autograd.grad(value.sum(), entropy)
    assert value[0].tolist() == pytest.approx([-0.05, -0.2], rel=1e-14)
    assert gradient[0].tolist() == pytest.approx([-0.1, -0.1], rel=1e-14)
    assert bonus.reads == {"entropy"} and bonus.entropy_gradient and not bonus.follows_advantage

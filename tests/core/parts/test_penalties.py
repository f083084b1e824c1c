"""Divergence from the reference, by hand. The adaptive temperature."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import ragged, run
from oracles import prelude
from tokenpo.core.parts import AdaptiveTemperature, Reweighted, StraightThrough
from tokenpo.core.parts.critic import RightLikelihood
from tokenpo.core.parts.loss import K1, K2, K3, AbsoluteLogRatio, EntropyBonus, Estimator, K3Within, ReferenceKl
from tokenpo.core.parts.surrogate import GeometricSequence, TokenRatio

LN2 = math.log(2)


def _seen(penalty: ReferenceKl | Reweighted, batch) -> tuple[list[float], list[float]]:
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
        (K3Within(5.0, 0.25), [0.5 - 1 + LN2, 0.25], [0.5, 0]),  # the second is above 0.25: flat there
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


@pytest.mark.parametrize(
    ("reward", "share"),
    [([1.0, 0.0], [3, 0, 0]), ([0.0, 1.0], [0, 1.5, 1.5]), ([1.0, 2.0], [1, 1, 1]), ([0.0, -1.0], [0, 0, 0])],
)
def test_the_likelihood_of_right_responses_by_hand(batch, reward: list[float], share: list[float]) -> None:
    """Responses of one token and of two, at lp = -ln 4: 2 ln 4 times the share, and a slope of -2 times the share."""
    step = batch([[1.0], [1.0, 1.0]], [0.0, 0.0])
    step = step.of(dataclasses.replace(step.rollouts, reward=torch.tensor(reward)), step.policy)
    penalty = RightLikelihood(2.0)
    step = step.with_signal(penalty.share, penalty.share(step.rollouts))
    value = penalty(step, None)
    (gradient,) = torch.autograd.grad(value.sum(), step.policy.logprob)
    assert step.signal(penalty.share)[step.mask].tolist() == share
    assert value[step.mask].tolist() == pytest.approx([4 * LN2 * x for x in share], rel=1e-14)
    assert gradient[step.mask].tolist() == [-2 * x for x in share]


# Weighed by the ratio ----------------------------------------------------------------------------------------------


def test_reweighted_by_hand(batch) -> None:
    """At ratios 2 and 1, x = -ln 2 and ln 2: r k3 = 2 (ln 2 - 1/2) and 1 - ln 2; the gradient -r x = 2 ln 2, -ln 2."""
    seen, gradient = _seen(Reweighted(ReferenceKl(3.0)), batch)
    assert seen == pytest.approx([6 * (LN2 - 0.5), 3 * (1 - LN2)], rel=1e-14)
    assert gradient == pytest.approx([6 * LN2, -3 * LN2], rel=1e-14)


@pytest.mark.parametrize("estimator", [K1(), K3()])
@pytest.mark.parametrize("moved", [0.0, 0.7])
def test_reweighted_has_value_and_gradient_of_the_divergence(batch, estimator: Estimator, moved: float) -> None:
    """Five tokens, every one of them "sampled" and counted by its old probability: KL(π ‖ π_ref) and its gradient to
    the logits, where the policy has moved and where it has not. Without the weight the gradient is another."""
    draw = torch.Generator().manual_seed(0)
    old, ref, step = (torch.randn(5, generator=draw, dtype=torch.float64) for _ in range(3))
    logits = (old + moved * step).requires_grad_()
    p_old, lp, lp_ref = old.log_softmax(0).exp(), logits.log_softmax(0), ref.log_softmax(0)
    row = batch([[1.0] * 5], [0.0], ref_logprob=[lp_ref.tolist()])
    rollouts = dataclasses.replace(row.rollouts, old_logprob=p_old.log()[None])
    row = dataclasses.replace(row, rollouts=rollouts, policy=tokenpo.Policy(lp[None]))

    def mean(penalty) -> tuple[float, torch.Tensor]:
        value = (p_old * penalty(row, None)[0]).sum()
        return float(value.detach()), torch.autograd.grad(value, logits, retain_graph=True)[0]

    divergence = (lp.exp() * (lp - lp_ref)).sum()
    (exact,) = torch.autograd.grad(divergence, logits, retain_graph=True)
    value, gradient = mean(Reweighted(ReferenceKl(1.0, estimator)))
    assert value == pytest.approx(float(divergence.detach()), rel=1e-12)
    torch.testing.assert_close(gradient, exact, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(mean(ReferenceKl(1.0, estimator))[1], exact, rtol=0.1)


def test_reweighted_says_what_it_holds() -> None:
    objective = dataclasses.replace(tokenpo.method("gspo"), penalties=(Reweighted(ReferenceKl(0.1)),))
    assert objective.needs == {"ref_logprob"} and not objective.follows_advantage
    tokenpo.check_method(objective)
    assert Reweighted(tokenpo.method("tepo").penalties[0]).follows_advantage


def test_without_a_scale_nothing_changes() -> None:
    assert AdaptiveTemperature()(torch.tensor([0.1, 3.0]), 0.7, {}).tolist() == pytest.approx([0.7, 0.7])


def _oracle(s, beta: float, *, response: bool) -> tuple[float, np.ndarray]:
    """beta r k3 under GRPO's mean of means, with the gradient by hand.

    Token: d(r k3) = r k3 + r (1 - u) with u = π_ref/π. Response: w is the same at its n tokens and dw/dlp_t = w / n, so
    every token takes w times the mean of k3.
    """
    k, dk = prelude.k3(s)
    w, dw = prelude.sequence_ratio(s) if response else prelude.ratio(s)
    return prelude.sequence_mean(
        s, -beta * w * k, -beta * (w * dk + dw * (prelude.response_mean(s, k) if response else k))
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ratio", [TokenRatio(), GeometricSequence()])
def test_reweighted_is_its_oracle(ratio, seed: int) -> None:
    """Within a loss: whatever its other terms, the penalty adds value and gradient of the oracle."""
    sample, bare = ragged(seed), tokenpo.method("grpo")
    objective = dataclasses.replace(bare, penalties=(Reweighted(ReferenceKl(0.3), ratio),))
    got, without = run(objective, sample), run(bare, sample)
    value, gradient = _oracle(sample, 0.3, response=ratio == GeometricSequence())
    assert got.value - without.value == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(got.gradient - without.gradient, gradient, rtol=1e-8, atol=1e-14)
    split = run(objective, sample, pieces=[slice(row, row + 1) for row in range(len(sample.reward))])
    np.testing.assert_allclose(split.gradient, got.gradient, rtol=1e-12, atol=1e-16)

"""Methods with a critic by hand: advantages, targets, the loss of the value, and what it reports."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import Sample, assemble, batches, by_hand, close, outcome, ragged, run, tensors
from oracles import token_credit as oracle
from tokenpo.core.parts import Critic, Gae, SoftOverlong


def _advantages(name: str, sample: Sample, **options) -> np.ndarray:
    return outcome(name, sample, **options).terms["advantage"][sample.mask]


def _with_hole() -> Sample:
    """Reward 1, V = 0.5, 0.2, (a tool's token), 0.4."""
    sample = by_hand([[1, 1, 1, 1]], [1], value=[[0.5, 0.2, 9.0, 0.4]])
    return sample.but(mask=np.array([[True, True, False, True]]), value=sample.value * [[1, 1, 0, 1]])


def test_gae_by_hand() -> None:
    """gamma 1/2, lam 1/2. Backwards: δ = 1 - 0.4 = 0.6, A = 0.6. The tool's token is skipped: δ = 0.4/2 - 0.2 = 0 and
    A = 0 + 0.6/4 = 0.15. δ = 0.2/2 - 0.5 = -0.4 and A = -0.4 + 0.15/4 = -0.3625."""
    got = _advantages("ppo", _with_hole(), lam=0.5, gamma=0.5, whiten=False)
    np.testing.assert_allclose(got, [-0.3625, 0.15, 0.6], rtol=1e-12)


def test_rewards_of_tokens_and_of_the_reference_arrive_where_they_are() -> None:
    """lam = gamma = 1 and V = 0: A is what is still to come. 1, 2 with beta 1 and log-ratios ln 2, 0: 3 - ln 2, 2."""
    sample = by_hand([[1, 1]], [7], token_reward=[[1, 2]])
    sample = sample.but(ref_logprob=sample.old_logprob - [[math.log(2), 0]])
    got = _advantages("ppo", sample, token_reward=True, beta=1.0, whiten=False)
    np.testing.assert_allclose(got, [3 - math.log(2), 2], rtol=1e-12)


def test_lambda_of_a_length() -> None:
    """alpha 1/2: two tokens have lam = 1 - 1/max(1, 1) = 0, four 1 - 1/2: A_1 = δ_1 and δ_1 + δ_2/2 + δ_3/4 + δ_4/8."""
    sample = by_hand([[1, 1], [1, 1, 1, 1]], [1, 1], value=[[0.25, 0.5], [0.25, 0.5, 0.5, 0.5]])
    got = _advantages("vapo", sample, alpha=0.5, whiten=False, coef=0.0)
    np.testing.assert_allclose(got[[0, 1, 2]], [0.25, 0.5, 0.25 + 0.5 / 8], rtol=1e-12)


def test_right_responses_have_a_denominator_of_their_own() -> None:
    """Two right tokens of three, coef 0.3: each has the slope -0.3 / 2, whatever rows are evaluated together."""
    sample = by_hand([[1, 1], [1]], [1, 0])
    sample = sample.but(value=np.where(sample.mask, sample.reward[:, None], 0))
    objective = tokenpo.method("vapo", coef=0.3)
    got = run(objective, sample)
    np.testing.assert_allclose(got.gradient, [[-0.15, -0.15], [0, 0]], rtol=1e-12)
    close(run(objective, sample, pieces=[slice(0, 1), slice(1, 2)]), got)


@pytest.mark.parametrize("name", ["ppo", "vapo"])
def test_equal_rewards_teach_nothing_without_a_value(name: str) -> None:
    sample = ragged(0)
    flat = sample.but(reward=np.ones_like(sample.reward), value=0 * sample.value)
    options = {"coef": 0.0, "alpha": 1e9} if name == "vapo" else {}
    assert np.abs(_advantages(name, flat, **options)).max() < 1e-4


CLIPS = [(lam, clip) for lam in (1.0, 0.3) for clip in (0.1, math.inf)]


@pytest.mark.parametrize(("lam", "clip"), CLIPS)
def test_value_loss_is_its_oracle(lam: float, clip: float) -> None:
    """Value and slope, whole and in pieces, with tokens of tools between."""
    for seed, sample in enumerate(batches("ppo")):
        objective = tokenpo.method("ppo", critic_lam=lam, value_clip=clip, gamma=0.9)
        step = assemble(objective, tensors(sample))
        target = oracle.gae(sample, oracle.arriving(sample), lam, 0.9)[1]
        v = sample.value + np.random.default_rng(seed).normal(size=sample.mask.shape)
        value, slope = oracle.value_loss(sample, v, target, clip)
        for pieces in ((slice(None),), (slice(0, 3), slice(3, None))):
            leaf = torch.tensor(np.where(sample.mask, v, np.nan), requires_grad=True)
            facts, credit = step.batch.rollouts, step.batch.credit
            losses = [objective.value_loss(facts.rows(p), credit.rows(p), leaf[p], step.totals) for p in pieces]
            total = torch.stack([loss.value for loss in losses]).sum()
            total.backward()
            np.testing.assert_allclose(float(total.detach()), value, rtol=1e-12)
            np.testing.assert_allclose(leaf.grad, slope, rtol=1e-10, atol=1e-15)


def test_value_loss_by_hand() -> None:
    """R = 1, V = 0, v = 0.3 and 2: G = 1. The clip at 0.2 keeps (0.2 - 1)² > (0.3 - 1)², without a slope; of the second
    (2 - 1)² > (0.2 - 1)² keeps its slope 1. Loss (0.64 + 1) / 4."""
    objective = tokenpo.method("ppo", value_clip=0.2)
    step = assemble(objective, tensors(by_hand([[1, 1]], [1])))
    leaf = torch.tensor([[0.3, 2.0]], dtype=torch.float64, requires_grad=True)
    loss = objective.value_loss(step.batch.rollouts, step.batch.credit, leaf, step.totals)
    loss.value.backward()
    np.testing.assert_allclose([float(loss.value.detach()), *leaf.grad[0]], [0.41, 0, 0.5], rtol=1e-12)


def test_the_critic_is_fitted_to_the_shaped_reward() -> None:
    """Three tokens of at most three, with a cache of two: the penalty is 1, and so the target 1 - 1."""
    objective = tokenpo.method("ppo")
    shaped = tokenpo.Objective(
        objective.credit, objective.surrogate, objective.aggregate, shaping=(SoftOverlong(3, 2),), critic=Critic()
    )
    step = assemble(shaped, tensors(by_hand([[1, 1, 1]], [1])))
    assert not step.batch.credit.signals[Critic()].any()


def test_a_learner_reports_the_critic() -> None:
    """G = 1 and 0 by token; V = 0.5 and 0.5 explains nothing, V = 1 and 0 everything; the loss is ½ (0.5)²."""
    sample = by_hand([[1], [1]], [1, 0], value=[[0.5], [0.5]])
    for value, explained, missed in (([[0.5], [0.5]], 0.0, 0.125), ([[1.0], [0.0]], 1.0, 0.0)):
        field = tensors(sample.but(value=np.array(value)))
        rollouts = tokenpo.Rollouts(**{k: field[k] for k in ("mask", "reward", "group", "old_logprob", "value")})
        learner = tokenpo.Learner(tokenpo.method("ppo"), length=1)
        for update in learner.begin(rollouts).updates():
            update.evaluate(tokenpo.Policy(rollouts.old_logprob))
            update.value_loss(rollouts.need("value"))
            learner.check(update)
        assert learner.metrics()["explained_variance"] == pytest.approx(explained)
        assert learner.metrics()["value_loss"] == pytest.approx(missed)


def test_an_objective_without_a_critic_has_no_value_loss() -> None:
    objective = tokenpo.method("grpo")
    step = assemble(objective, tensors(ragged(0)))
    with pytest.raises(tokenpo.TokenPOError, match="grpo has no critic to train"):
        objective.value_loss(step.batch.rollouts, step.batch.credit, step.logprob, step.totals)


def test_credit_without_a_critic_reads_a_value_that_somebody_else_learns() -> None:
    objective = tokenpo.Objective(Gae(), tokenpo.method("ppo").surrogate, tokenpo.method("ppo").aggregate)
    assert objective.needs == {"value"} and "critic" not in str(objective)
    close(run(objective, ragged(0)), outcome("ppo", ragged(0)))

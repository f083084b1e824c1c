"""What TRL 1.16 makes of a generation batch before the loss: advantages, and the correction for what vLLM reported."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import tokenpo
from foreign_support import ours
from foreign_support.trl_trainer import GRPOConfig, loss, rollouts
from oracle_support import Sample, close, ragged, run, tensors
from tokenpo.core.parts import GroupAdvantage, SoftOverlong

G = 4
seeds = pytest.mark.parametrize("seed", range(2))


def _batch(seed: int) -> Sample:
    """Five groups of four, in TRL's order, no rollout without tokens; the sampler was half a nat away."""
    rng = np.random.default_rng(seed)
    sample = ragged(seed).alive()
    reward = np.round(rng.normal(size=len(sample.reward)), 2)
    moved = np.minimum(np.where(sample.mask, sample.old_logprob + 0.5 * rng.normal(size=sample.mask.shape), 0), 0)
    return sample.but(reward=reward, group=np.repeat([7, 2, 30, 4, 0], G), rollout_logprob=moved)


def _advantage(sample: Sample, **settings: Any) -> np.ndarray:
    """[N, T] TRL's advantage at every token."""
    advantage = rollouts(sample, num_generations=G, **settings)["advantages"]
    return advantage[:, None] * sample.mask


def _with_trls_eps(name: str) -> tokenpo.Objective:
    return dataclasses.replace(tokenpo.method(name), credit=GroupAdvantage(eps=1e-4))


@seeds
def test_scaled_by_the_group_it_is_grpos_with_another_eps(seed: int) -> None:
    """The defaults differ by (std + 1e-4) / (std + 1e-6)."""
    sample = _batch(seed)
    theirs = _advantage(sample)
    np.testing.assert_allclose(ours(_with_trls_eps("grpo"), sample)[1], theirs, rtol=1e-10)
    std = np.repeat(sample.reward.reshape(-1, G).std(1, ddof=1), G)[:, None]
    np.testing.assert_allclose(ours("grpo", sample)[1] * (std + 1e-6) / (std + 1e-4), theirs, rtol=1e-10)


@seeds
def test_not_scaled_it_is_dr_grpos(seed: int) -> None:
    sample = _batch(seed)
    np.testing.assert_allclose(ours("dr_grpo", sample)[1], _advantage(sample, scale_rewards="none"), rtol=1e-10)


@seeds
def test_scaled_by_the_batch_it_is_lite_ppos(seed: int) -> None:
    sample = _batch(seed)
    theirs = _advantage(sample, scale_rewards="batch")
    np.testing.assert_allclose(ours("lite_ppo", sample, eps=1e-4)[1], theirs, rtol=1e-10)


@seeds
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 0.5, -2.0)])
def test_several_rewards_each_normalised_are_gdpos(weights: tuple[float, ...], seed: int) -> None:
    """Also where one does not apply to a rollout, or to all but one of a group, or none to a rollout."""
    sample = _batch(seed)
    each = sample.rewards + 0.1 * np.random.default_rng(seed).normal(size=sample.rewards.shape)  # no group is equal
    each[1, 0] = each[4:7, 1] = each[9] = np.nan
    for rewards in (each.copy(), np.nan_to_num(each, nan=0.3)):
        sample = sample.but(rewards=rewards)
        theirs = rollouts(sample, weights, num_generations=G, multi_objective_aggregation="normalize_then_sum")[
            "advantages"
        ]
        got = ours("gdpo", sample, weights=weights)[1]
        np.testing.assert_allclose(got, theirs[:, None] * sample.mask, rtol=1e-10, atol=1e-12)


@seeds
def test_from_rewards_to_the_loss(seed: int) -> None:
    sample = _batch(seed)
    got, _ = ours(_with_trls_eps("grpo"), sample)
    close(got, loss(sample, rollouts(sample, num_generations=G)["advantages"], loss_type="grpo"))


def test_soft_overlong() -> None:
    from trl.rewards import get_soft_overlong_punishment

    sample = ragged(0)
    theirs = get_soft_overlong_punishment(7, 4)([[1] * int(n) for n in sample.mask.sum(1)])
    field = tensors(sample)
    facts = tokenpo.Rollouts(*(field[name] for name in ("mask", "reward", "group", "old_logprob")))
    np.testing.assert_allclose(SoftOverlong(7, 4)(facts).numpy(), theirs, rtol=1e-12)
    assert {-1, 0} < set(theirs)


# The correction for the engine that sampled ----------------------------------------------------------------------


def test_the_default_correction_drops_whole_responses_beyond_3() -> None:
    """It bounds the product of a response's ratios, not their mean. No method of ours corrects by default."""
    sample = _batch(0)
    correction = rollouts(sample, num_generations=G, use_vllm=True)["importance_sampling_ratio"][:, 0]
    product = np.exp((sample.old_logprob - sample.rollout_logprob).sum(1))
    np.testing.assert_allclose(correction, np.where(product <= 3, product, 0), rtol=1e-10)
    assert 0 < (correction == 0).sum() < len(correction)
    preset = tokenpo.corrected(tokenpo.method("grpo"), "trl")
    weight = run(preset, sample).terms["weight"]
    np.testing.assert_allclose(weight[sample.mask], (correction[:, None] * sample.mask)[sample.mask], rtol=1e-10)
    assert GRPOConfig.__dataclass_fields__["vllm_importance_sampling_correction"].default is True

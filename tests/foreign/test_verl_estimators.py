"""verl 0.9.1's group estimators on our batches: the same advantage where they mean the same, else the difference."""

from typing import Any

import numpy as np
import pytest
import torch

import tokenpo
from foreign_support.verl_losses import core
from oracle_support import Sample, assemble, holed, ragged, run, tensors
from oracles.token_credit import arriving

LONE, EQUAL = 11, 4  # the groups of `ragged` with a single rollout and with equal rewards


def _verl(estimator: str, sample: Sample, cost: np.ndarray | None = None, **how: Any) -> np.ndarray:
    """[N, T] verl's advantage. The reward lies on a response's last token, a `cost` [N, T] on each."""
    rewards = torch.zeros(sample.mask.shape, dtype=torch.float64)
    rewards[range(len(sample.reward)), np.maximum(sample.mask.sum(1) - 1, 0)] = torch.tensor(sample.reward)
    if cost is not None:
        rewards = rewards - torch.tensor(cost * sample.mask)
    if estimator != "reinforce_plus_plus":
        how["index"] = sample.group
    advantage, _ = core.get_adv_estimator_fn(estimator)(
        token_level_rewards=rewards,
        response_mask=torch.tensor(sample.mask, dtype=torch.int64),
        config=core.AlgoConfig(),
        **how,
    )
    return advantage.numpy() * sample.mask


def _ours(name: str, sample: Sample, **options: Any) -> np.ndarray:
    return run(tokenpo.method(name, **options), sample).terms["advantage"]


def _without(sample: Sample, *groups: int) -> Sample:
    """Without these groups, and without the rollout that has no token."""
    return sample.rows(np.flatnonzero(~np.isin(sample.group, groups))).alive()


def test_every_registered_estimator_is_compared_or_named() -> None:
    compared = {theirs for theirs, *_ in ESTIMATORS} | {"gae", "gpg", "gdpo", "remax", *BASELINES}
    assert {name for name in core.ADV_ESTIMATOR_REGISTRY if not name.startswith("tokenpo/")} == compared


BASELINES = ("optimal_token_baseline", "tir_optimal_token_baseline")
# Bessel's factor in verl's whitening is a quotient of integers, which torch rounds to float32: 6e-8, half of it left.
ESTIMATORS = [
    ("grpo", "grpo", {}, 1e-10),
    ("grpo", "dr_grpo", {"norm_adv_by_std_in_grpo": False}, 1e-10),
    ("grpo_vectorized", "dr_grpo", {"norm_adv_by_std_in_grpo": False}, 1e-6),  # float32 throughout
    ("rloo", "rloo", {}, 1e-10),
    ("rloo_vectorized", "rloo", {}, 1e-10),
    ("opo", "opo", {}, 1e-10),
    ("grpo_passk", "grpo_passk", {}, 1e-10),
    ("reinforce_plus_plus", "reinforce_pp", {}, 5e-8),
    ("reinforce_plus_plus_baseline", "reinforce_pp_baseline", {}, 5e-8),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(("theirs", "name", "how", "rtol"), ESTIMATORS)
def test_advantages(theirs: str, name: str, how: dict, rtol: float, binary: bool, seed: int) -> None:
    sample = _without(ragged(seed, binary=binary), LONE)
    atol = 1e-12 if rtol == 1e-10 else rtol  # whitened and float32 numbers lose digits where they nearly cancel
    np.testing.assert_allclose(_ours(name, sample), _verl(theirs, sample, **how), rtol=rtol, atol=atol)


@pytest.mark.parametrize("seed", range(2))
def test_reinforce_pp_with_a_divergence_in_the_reward(seed: int) -> None:
    sample = _without(ragged(seed))
    cost = core.kl_penalty(torch.tensor(sample.old_logprob), torch.tensor(sample.ref_logprob), "k1").numpy()
    theirs = _verl("reinforce_plus_plus", sample, cost=0.3 * cost)
    np.testing.assert_allclose(_ours("reinforce_pp", sample, beta=0.3), theirs, rtol=5e-8, atol=5e-8)


@pytest.mark.parametrize(("theirs", "name"), [("grpo", "grpo"), ("opo", "opo"), ("rloo", "rloo")])
def test_a_lone_rollout_gets_its_reward_from_verl_and_nothing_from_us(theirs: str, name: str) -> None:
    """verl's mean of a group of one is 0 and its deviation 1; only its rloo_vectorized gives 0 too."""
    sample = _without(ragged(0, binary=False))
    lone = (sample.group == LONE)[:, None] & sample.mask
    reward = np.broadcast_to(sample.reward[:, None], lone.shape)[lone]
    np.testing.assert_allclose(_verl(theirs, sample)[lone], reward, rtol=2e-6)
    assert not _verl("rloo_vectorized", sample)[lone].any()
    assert not _ours(name, sample)[lone].any()


def test_remax() -> None:
    for sample in (ragged(0, binary=False).alive(), holed(1).alive()):
        rewards = torch.tensor(arriving(sample, False))
        mask = torch.tensor(sample.mask, dtype=torch.int64)
        advantage, _ = core.compute_remax_outcome_advantage(rewards, torch.tensor(sample.baseline), mask)
        np.testing.assert_allclose(_ours("remax", sample), advantage.numpy() * sample.mask, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("lam", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("token_reward", [False, True])
def test_gae(token_reward: bool, lam: float) -> None:
    """Advantages and, clipped and not, the loss of the value: also where a tool has written between the tokens."""
    for sample in (ragged(0, binary=False).alive(), holed(1).alive()):
        rewards = torch.tensor(arriving(sample, token_reward))
        mask, values = torch.tensor(sample.mask, dtype=torch.int64), torch.tensor(sample.value)
        advantage, returns = core.compute_gae_advantage_return(rewards, values, mask, 0.95, lam)
        options = {"lam": lam, "critic_lam": lam, "gamma": 0.95, "token_reward": token_reward}
        ours = _ours("ppo", sample, **options)
        np.testing.assert_allclose(ours, advantage.numpy() * sample.mask, rtol=5e-8, atol=5e-8)
        for clip in (0.1, 9.0):
            objective = tokenpo.method("ppo", value_clip=clip, **options)
            step, v = assemble(objective, tensors(sample)), values + 0.3 * torch.tensor(sample.gain)
            loss = objective.value_loss(step.batch.rollouts, step.batch.credit, v, step.totals).value
            theirs, _ = core.compute_value_loss(v, returns, values, mask, clip)
            np.testing.assert_allclose(loss, theirs, rtol=1e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("zero_tail", [True, False])
@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("estimator", BASELINES)
def test_optimal_token_baseline(estimator: str, corrected: bool, zero_tail: bool, seed: int) -> None:
    """Rewards at tokens and at the end, with a weight of the sampling engine and without. Where a tool has written
    between the tokens, ours is verl's form for several turns. verl adds 1e-8 where every rollout's G is in B."""
    for sample in (_without(ragged(seed, binary=False)), *([holed(seed).alive()] if "tir" in estimator else ())):
        cap = 1.5 if corrected else None
        weights = np.minimum(np.exp(sample.old_logprob - sample.rollout_logprob), cap) if corrected else None
        how = {
            "index": sample.group,
            "old_log_probs": torch.tensor(sample.old_logprob),
            "sum_pi_squared": torch.tensor(np.maximum(sample.old_collision, np.exp(2 * sample.old_logprob))),
            "rollout_is_weights": None if weights is None else torch.tensor(weights),
            "handle_zero_tail": zero_tail,
        }
        sample = sample.but(old_collision=how["sum_pi_squared"].numpy())
        options = {"zero_tail": zero_tail, "rollout_cap": cap}
        arrive = {"token_level_rewards": torch.tensor(sample.token_reward), "response_mask": torch.tensor(sample.mask)}
        theirs, _ = core.get_adv_estimator_fn(estimator)(**arrive, **how)
        got = _ours("otb", sample, token_reward=True, **options)
        np.testing.assert_allclose(got[sample.mask], theirs.numpy()[sample.mask], rtol=1e-6, atol=1e-6)
        last = torch.tensor(sample.mask.cumsum(1) == sample.mask.sum(1, keepdims=True)) & torch.tensor(sample.mask)
        arrive["token_level_rewards"] = torch.tensor(sample.reward)[:, None] * last
        theirs, _ = core.get_adv_estimator_fn(estimator)(**arrive, **how)
        got = _ours("otb", sample, **options)
        np.testing.assert_allclose(got[sample.mask], theirs.numpy()[sample.mask], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("weights", [None, (1.0, 0.5, -2.0)])
def test_gdpo(weights: tuple[float, ...] | None, seed: int) -> None:
    """verl takes single rewards from the batch and keeps them in float32."""
    sample = _without(ragged(seed), LONE)
    keys = [f"r{k}" for k in range(3)]
    lengths = torch.arange(sample.mask.shape[1])[None] < torch.tensor(sample.mask.sum(1))[:, None]
    batch = {
        "prompts": torch.zeros(len(sample.reward), 1),
        "attention_mask": torch.cat([lengths[:, :1] * 0 + 1, lengths], 1),
    }
    theirs, _ = core.get_adv_estimator_fn("gdpo")(
        token_level_rewards=torch.zeros(sample.mask.shape),
        response_mask=torch.tensor(sample.mask, dtype=torch.int64),
        index=sample.group,
        config={"gdpo_reward_keys": keys, "gdpo_reward_weights": weights},
        non_tensor_batch=dict(zip(keys, sample.rewards.T, strict=True)),
        batch=batch,
    )
    got = _ours("gdpo", sample, form="verl", weights=weights or ())
    np.testing.assert_allclose(got, theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_gpg_scales_by_the_rewards_that_are_not_0_in_verl_and_by_the_groups_that_teach_in_ours() -> None:
    """verl: B / #{R != 0}. Paper and ours: B / (B - M), with M rollouts in groups whose rewards are all equal."""
    sample = _without(ragged(0), LONE)
    rows, right, silent = len(sample.reward), (sample.reward != 0).sum(), (sample.group == EQUAL).sum()
    assert right != rows - silent
    ours = _ours("gpg", sample) * (rows - silent) / rows
    np.testing.assert_allclose(_verl("gpg", sample) * right / rows, ours, rtol=1e-6)  # verl's factor is float32

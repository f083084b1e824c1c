"""verl 0.9.1's policy losses on our batches: value and gradient equal where they mean the same, else the difference."""

import dataclasses

import numpy as np
import pytest
import torch

import tokenpo
from foreign_support import ours
from foreign_support.verl_losses import core
from foreign_support.verl_losses import loss as _verl
from oracle_support import Sample, close, ragged, run

seeds = pytest.mark.parametrize("seed", range(2))


def test_every_registered_loss_is_compared_here() -> None:
    assert {name for name in core.POLICY_LOSS_REGISTRY if not name.startswith("tokenpo/")} == {
        *("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro", "cispo"),
        "bypass_mode",
    }


MEANS = {"aggregate": "seq-mean-token-mean"}
GSPO = {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4, **MEANS}
LOSSES = [
    ("vanilla", "dapo", {"high": 0.2, "dual": 3.0}, {}),  # verl's defaults
    ("vanilla", "dapo", {}, {"clip_ratio_high": 0.28, "clip_ratio_c": 10.0}),  # DAPO's recipe
    ("cispo", "cispo", {"low": 0.2, "high": 0.2}, {}),
    ("cispo", "cispo", {}, {"clip_ratio_low": 1.0, "clip_ratio_high": 0.28}),
    ("kl_cov", "kl_cov", {"fraction": 0.1, "coef": 0.7}, {"policy_loss": {"kl_cov_ratio": 0.1, "ppo_kl_coef": 0.7}}),
    ("gpg", "gpg", {}, {}),
    ("gpg", "opo", {}, {}),
    ("gpg", "raft", {}, {}),
    ("vanilla", "rloo", {}, {"clip_ratio_c": 1e9}),
    ("vanilla", "reinforce_pp", {}, {"clip_ratio_c": 1e9}),
    *(("dro", "dro", {"beta": beta}, {"policy_loss": {"dro_beta": beta}}) for beta in (0.05, 0.3)),
    ("vanilla", "grpo", {}, {"clip_ratio_c": 1e9, **MEANS}),
    ("gspo", "gspo_token", {}, GSPO),
    ("gspo", "gspo", {}, GSPO),
    ("sapo", "sapo", {}, {}),  # a mean of means whatever verl is told
    ("sapo", "sapo", {"tau_pos": 0.8, "tau_neg": 1.3}, {"tau_pos": 0.8, "tau_neg": 1.3, **MEANS}),
]


@seeds
@pytest.mark.parametrize(("theirs", "name", "options", "actor"), LOSSES)
def test_loss(theirs: str, name: str, options: dict, actor: dict, seed: int) -> None:
    sample = ragged(seed)
    got, advantage = ours(name, sample, **options)
    close(got, _verl(theirs, sample, advantage, **actor))


@seeds
def test_dr_grpo_divides_by_the_longest_response_and_verl_by_the_same_when_told(seed: int) -> None:
    """Its trainer hands loss_scale_factor on as global batch information."""
    sample = ragged(seed).widened(9)
    got, advantage = ours("dr_grpo", sample)
    told = {"loss_scale_factor": int(sample.mask.sum(1).max())}
    how = {"clip_ratio_c": 1e9, "aggregate": "seq-mean-token-sum-norm"}
    close(got, _verl("vanilla", sample, advantage, global_batch_info=told, **how))


@seeds
@pytest.mark.parametrize(("name", "aggregate"), [("dapo", "token-mean"), ("grpo", "seq-mean-token-mean")])
def test_a_part_of_a_step_weighs_the_same_when_verl_is_told_the_whole(name: str, aggregate: str, seed: int) -> None:
    sample = ragged(seed)
    rows = slice(3, 11)
    got, advantage = run(tokenpo.method(name), sample, pieces=[rows]), ours(name, sample)[1]
    told = {"batch_num_tokens": int(sample.mask.sum()), "global_batch_size": int(sample.mask.any(1).sum())}
    actor = {"clip_ratio_high": 0.28, "clip_ratio_c": 10.0} if name == "dapo" else {"clip_ratio_c": 1e9}
    part = _verl("vanilla", sample.rows(rows), advantage[rows], aggregate, global_batch_info=told, **actor)
    close(dataclasses.replace(got, gradient=got.gradient[rows], entropy_gradient=got.entropy_gradient[rows]), part)


@seeds
def test_geo_mean(seed: int) -> None:
    sample = ragged(seed).alive()
    got, advantage = ours("gmpo", sample, low=0.4, high=0.3)
    close(got, _verl("geo_mean", sample, advantage, clip_ratio_low=0.4, clip_ratio_high=0.3))


@seeds
@pytest.mark.parametrize(("name", "threshold"), [("dppo_tv", 0.02), ("dppo_kl", 0.001)])
@pytest.mark.parametrize("cap", [1.05, 20.0])
def test_dppo(name: str, threshold: float, cap: float, seed: int) -> None:
    """verl is told the anchor as old_log_prob."""
    sample = ragged(seed)
    got, advantage = ours(name, sample, threshold=threshold, cap=cap, anchor="old")
    both = {"clip_ratio_low": threshold, "clip_ratio_high": threshold}
    close(got, _verl(name, sample, advantage, clip_ratio_c=cap, **both))


COV = {"clip_cov_ratio": 0.04, "clip_cov_lb": 0.1, "clip_cov_ub": 5.0}


@seeds
@pytest.mark.parametrize("fraction", [0.04, 1.0])
@pytest.mark.parametrize("clip", [(1.0, 1.0), (0.2, 0.3)])
def test_clip_cov_draws_the_same_tokens_from_the_same_seed(fraction: float, clip: tuple, seed: int) -> None:
    """Both permute the eligible tokens in row-major order; verl from the global generator, we from ours."""
    sample, (low, high) = ragged(seed), clip
    options = {"fraction": fraction, "cov_low": 0.1, "cov_high": 5.0, "low": low, "high": high}
    got = run(tokenpo.method("clip_cov", **options), sample, seed=seed)
    advantage = got.terms["advantage"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = {**COV, "clip_cov_ratio": fraction}
        theirs = _verl("clip_cov", sample, advantage, policy_loss=settings, clip_ratio_low=low, clip_ratio_high=high)
    close(got, theirs)
    assert (got.terms["weight"][sample.mask] == 0).any()


@seeds
def test_dro_is_gpg_with_a_squared_divergence_from_the_old_policy(seed: int) -> None:
    sample = ragged(seed)
    sample = sample.but(ref_logprob=sample.old_logprob)
    penalties = tokenpo.method("reinforce_pp_baseline", beta=0.3).penalties
    got = run(dataclasses.replace(tokenpo.method("gpg"), penalties=penalties), sample)
    close(got, _verl("dro", sample, got.terms["advantage"], policy_loss={"dro_beta": 0.3}))


@seeds
def test_bypass_mode_is_cispo_with_an_absolute_cap_or_plain_ppo(seed: int) -> None:
    sample = ragged(seed)
    correction = {"rollout_is": "token", "rollout_is_threshold": 2.0, "bypass_mode": True}
    got, advantage = ours("cispo", sample, high=2.0, absolute=True)
    policy_loss = {"rollout_correction": {**correction, "loss_type": "reinforce"}}
    close(got, _verl("bypass_mode", sample, advantage, policy_loss=policy_loss))
    got, advantage = ours("dapo", sample, high=0.2, dual=3.0)
    policy_loss = {"rollout_correction": {**correction, "loss_type": "ppo_clip"}}
    close(got, _verl("bypass_mode", sample, advantage, policy_loss=policy_loss))


def _penalty(sample: Sample, kind: str) -> tuple[float, np.ndarray]:
    """verl's divergence from the reference as a token mean, and its gradient."""
    lp = torch.tensor(sample.logprob, requires_grad=True)
    divergence = core.kl_penalty(lp, torch.tensor(sample.ref_logprob), kind)
    value = core.agg_loss(divergence, torch.tensor(sample.mask, dtype=torch.int64), "token-mean")
    (gradient,) = torch.autograd.grad(value, lp)
    return float(value.detach()), gradient.numpy()


@seeds
@pytest.mark.parametrize(("name", "kind"), [("forking_tokens", "low_var_kl"), ("reinforce_pp_baseline", "mse")])
def test_reference_penalties(name: str, kind: str, seed: int) -> None:
    sample = ragged(seed)
    sample = sample.but(ref_logprob=np.minimum(sample.ref_logprob, sample.logprob + 2))  # verl holds k3 at 10
    with_, without = (run(tokenpo.method(name, beta=beta), sample) for beta in (0.3, 0.0))
    value, gradient = _penalty(sample, kind)
    assert with_.value - without.value == pytest.approx(0.3 * value, rel=1e-9)
    np.testing.assert_allclose(with_.gradient - without.gradient, 0.3 * gradient, rtol=1e-9, atol=1e-14)

"""Our corrections for the policy that sampled against verl's own functions: weights, what is rejected, whole losses."""

import dataclasses

import numpy as np
import pytest
import torch

import tokenpo
from foreign_support import need, ours
from foreign_support.verl_losses import MISSING
from foreign_support.verl_losses import loss as _verl
from oracle_support import Sample, close, ragged, run
from tokenpo.core.parts import (
    K2,
    K3,
    Criterion,
    EachToken,
    Every,
    Mean,
    NormalisedWeight,
    Rejection,
    RolloutCorrection,
    RolloutMean,
    Total,
    Weight,
)
from tokenpo.hosts.verl.configure import preset_of
from tokenpo.methods.extensions import PRESETS

helper = need("verl.trainer.ppo.rollout_corr_helper", MISSING)
VerlConfig = need("verl.trainer.config.algorithm", MISSING).RolloutCorrectionConfig
seeds = pytest.mark.parametrize("seed", range(2))


def _sample(seed: int) -> Sample:
    """The sampler is a little away from the old policy in some responses, and far in others."""
    rng = np.random.default_rng(seed)
    sample = ragged(seed)
    scale = rng.choice([1e-4, 0.02, 0.8], size=(len(sample.mask), 1))
    x = scale * rng.normal(size=sample.mask.shape)
    return sample.but(rollout_logprob=np.where(sample.mask, np.minimum(sample.old_logprob + x, -1e-4), 0))


def _theirs(sample: Sample, **asked) -> tuple[np.ndarray | None, np.ndarray]:
    """verl's weights and the response mask that it leaves, [N, T]."""
    weights, mask, _ = helper.compute_rollout_correction_and_rejection_mask(
        old_log_prob=torch.tensor(sample.old_logprob),
        rollout_log_prob=torch.tensor(sample.rollout_logprob),
        response_mask=torch.tensor(sample.mask, dtype=torch.int64),
        **asked,
    )
    return None if weights is None else weights.batch["rollout_is_weights"].numpy(), mask.numpy().astype(bool)


def _ours(sample: Sample, *weights: Weight) -> np.ndarray:
    objective = dataclasses.replace(tokenpo.method("gpg"), weights=weights)
    return run(objective, sample).terms["weight"]


WEIGHTS = [
    ({"rollout_is": "token", "rollout_is_threshold": 1.2}, RolloutCorrection(cap=1.2)),
    ({"rollout_is": "sequence", "rollout_is_threshold": 1.2}, RolloutCorrection(sequence=True, cap=1.2)),
    ({"rollout_is": "token", "rollout_is_threshold": "0.8_1.2"}, RolloutCorrection(mask=True, cap=1.2, floor=0.8)),
    ({"rollout_is": "sequence", "rollout_is_threshold": "0.8_1.2"}, RolloutCorrection(True, True, 1.2, 0.8)),
]


@seeds
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize(("asked", "weight"), WEIGHTS)
def test_weights(asked: dict, weight: RolloutCorrection, normalised: bool, seed: int) -> None:
    sample = _sample(seed)
    theirs, mask = _theirs(sample, **asked, rollout_is_batch_normalize=normalised)
    assert (mask == sample.mask).all()
    got = _ours(sample, NormalisedWeight(weight, RolloutMean(weight)) if normalised else weight)
    np.testing.assert_allclose(got[sample.mask], theirs[sample.mask], rtol=1e-10)
    assert len(set(theirs[sample.mask])) > 3


INVERSE = (1 / 1.25, 1 / 0.9)  # verl compares 1/ρ
REJECTIONS = [
    ("token_k1", "0.9_1.25", Criterion(EachToken(), *INVERSE)),
    ("token_k1", "1.25", Criterion(EachToken(), 0.8, 1.25)),
    ("token_k2", "0.02", Criterion(EachToken(), high=0.02, of=K2())),
    ("token_k3", "0.02", Criterion(EachToken(), high=0.02, of=K3())),
    ("seq_sum_k1", "0.9_1.25", Criterion(Total(), *INVERSE)),
    ("seq_sum_k2", "0.02", Criterion(Total(), high=0.02, of=K2())),
    ("seq_sum_k3", "0.02", Criterion(Total(), high=0.02, of=K3())),
    ("seq_mean_k1", "0.999_1.01", Criterion(Mean(), 1 / 1.01, 1 / 0.999)),
    ("seq_mean_k2", "0.01", Criterion(Mean(), high=0.01, of=K2())),
    ("seq_mean_k3", "0.01", Criterion(Mean(), high=0.01, of=K3())),
    ("seq_max_k2", "0.02", Criterion(Every(), high=0.02, of=K2())),
    ("seq_max_k3", "0.02", Criterion(Every(), high=0.02, of=K3())),
]


def test_every_way_of_rejecting_is_compared_here() -> None:
    assert {name for name, *_ in REJECTIONS} == helper.SUPPORTED_ROLLOUT_RS_OPTIONS


@seeds
@pytest.mark.parametrize(("option", "threshold", "criterion"), REJECTIONS)
def test_what_is_rejected(option: str, threshold: str, criterion: Criterion, seed: int) -> None:
    sample = _sample(seed)
    _, mask = _theirs(sample, rollout_rs=option, rollout_rs_threshold=threshold)
    got = _ours(sample, Rejection((criterion,))).astype(bool)
    assert (got == mask)[sample.mask].all()
    assert 0 < mask.sum() < sample.mask.sum()


@seeds
def test_several_criteria_must_all_be_met(seed: int) -> None:
    sample = _sample(seed)
    _, mask = _theirs(sample, rollout_rs="token_k1,seq_mean_k3", rollout_rs_threshold="0.9_1.25,0.01")
    both = Rejection((Criterion(EachToken(), *INVERSE), Criterion(Mean(), high=0.01, of=K3())))
    assert (_ours(sample, both).astype(bool) == mask)[sample.mask].all()


# The presets, through whole losses -------------------------------------------------------------------------------


THEIRS = sorted(
    name for name, maker in vars(VerlConfig).items() if isinstance(maker, classmethod) and not name.startswith("_")
)


def test_every_preset_of_verls_is_one_of_ours() -> None:
    assert {name for name in PRESETS if name.startswith(("decoupled", "bypass_")) or name == "disabled"} == set(THEIRS)


def _asked(name: str) -> dict:
    config = getattr(VerlConfig, name)()
    return {
        field: getattr(config, field)
        for field in (
            *"rollout_is rollout_is_threshold rollout_rs rollout_rs_threshold".split(),
            "rollout_is_batch_normalize",
        )
    } | {"bypass_mode": config.bypass_mode, "loss_type": config.loss_type}


@seeds
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("name", THEIRS)
def test_presets(name: str, leaves: bool, seed: int) -> None:
    """A token mean over what verl is told: of all tokens, or of those that stay."""
    sample, asked = _sample(seed), _asked(name)
    rejects = asked["rollout_rs"] is not None
    if leaves and (not rejects or asked["bypass_mode"]):
        return  # nothing leaves; or by a policy that moves, after the denominators were counted
    base = tokenpo.method("dapo", high=0.2, dual=3.0)
    got, advantage = ours(tokenpo.corrected(base, name, leaves=leaves), sample)
    advantage = np.where(sample.mask, advantage, 0)
    told = {"batch_num_tokens": int(sample.mask.sum())}
    if asked["bypass_mode"]:
        bypassed = sample.but(old_logprob=sample.rollout_logprob)
        theirs = _verl(
            "bypass_mode", bypassed, advantage, policy_loss={"rollout_correction": asked}, global_batch_info=told
        )
    else:
        given = {key: value for key, value in asked.items() if key not in ("bypass_mode", "loss_type")}
        weights, mask = _theirs(sample, **given)
        told = {"batch_num_tokens": int((mask if leaves else sample.mask).sum())}
        theirs = _verl(
            "vanilla",
            sample.but(mask=mask),
            advantage,
            global_batch_info=told,
            rollout_is_weights=None if weights is None else torch.tensor(weights),
        )
        assert (mask.sum() < sample.mask.sum()) == rejects
    close(got, theirs)
    assert np.count_nonzero(got.gradient) > 3


# verl's own settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", THEIRS)
def test_verls_settings_of_a_preset_are_read_as_ours(name: str) -> None:
    assert preset_of(_asked(name)) == PRESETS[name]


def test_its_other_settings_are_read_too() -> None:
    tis = RolloutCorrection()
    assert preset_of({"rollout_is": "token", "rollout_is_batch_normalize": True}).weights == (
        NormalisedWeight(tis, RolloutMean(tis)),
    )
    asked = {"rollout_rs": "token_k1, seq_max_k3,token_k1", "rollout_rs_threshold": "2,0.5"}
    criteria = (Criterion(EachToken(), 0.5, 2.0), Criterion(Every(), high=0.5, of=K3()))
    assert preset_of(asked).weights == (Rejection(criteria),)
    assert preset_of({}) == PRESETS["disabled"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"rollout_is": "tokens"}, "rollout_is='tokens' is not a choice; did you mean 'token'"),
        (
            {"rollout_is": "token", "rollout_is_threshold": "2-3"},
            "rollout_is_threshold = '2-3' is not a threshold above 0",
        ),
        ({"rollout_rs": "seq_max_k1", "rollout_rs_threshold": 2}, "rollout_rs='seq_max_k1' is not a choice"),
        ({"rollout_rs": "token_k2", "rollout_rs_threshold": "0.1_2"}, "token_k2 has an upper bound only"),
        ({"loss_type": "reinforce"}, "needs bypass_mode=True"),
        (
            {"rollout_is": "token", "rollout_is_batch_normalize": True, "bypass_mode": True, "loss_type": "reinforce"},
            "rollout_is_batch_normalize with bypass_mode",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(asked: dict, message: str) -> None:
    with pytest.raises(tokenpo.TokenPOError, match=message):
        preset_of(asked)

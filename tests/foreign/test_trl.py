"""TRL 1.16's loss types on our batches: value and gradient equal where they mean the same, else the difference."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import tokenpo
from foreign_support import ours, summed
from foreign_support.trl_trainer import loss
from oracle_support import Sample, close, of, ragged, run
from tokenpo.core.parts import EntropyBonus, GeometricSequence

seeds = pytest.mark.parametrize("seed", range(2))


def _with(objective: tokenpo.Objective, **changes: Any) -> tokenpo.Objective:
    """The objective with another ratio or dual clip."""
    return dataclasses.replace(objective, surrogate=dataclasses.replace(objective.surrogate, **changes))


RATIO = {"ratio": GeometricSequence()}
SEQUENCE = {"importance_sampling_level": "sequence"}
GSPO = {**SEQUENCE, "epsilon": 3e-4, "epsilon_high": 4e-4}
LOSSES = [  # beside those of `settings.TRANSLATED` (test_trl_settings.py)
    ("cispo", tokenpo.method("cispo", high=1.3, absolute=True), {"epsilon_high": 1.3}),
    ("sapo", tokenpo.method("sapo"), {}),
    ("luspo", summed("grpo"), {}),
    # delta above the clip is the dual clip
    ("grpo", _with(tokenpo.method("grpo"), dual=3.0), {"delta": 3.0}),
    ("dapo", tokenpo.method("dapo", dual=3.0), {"delta": 3.0, "epsilon_high": 0.28}),
    ("grpo", tokenpo.method("gspo_token"), GSPO),
    (
        "dr_grpo",
        _with(tokenpo.method("dr_grpo", length=16, low=3e-4, high=4e-4), **RATIO),
        {**GSPO, "max_completion_length": 16},
    ),
    # TRL's token means of a sequence ratio, against whose lengths it warns, are TEPO's first version
    ("dapo", tokenpo.method("tepo_v1"), SEQUENCE),
    ("dapo", tokenpo.method("tepo", beta=0.0, low=3e-4, high=4e-4), GSPO),
    ("bnpo", tokenpo.method("tepo_v1"), SEQUENCE),
    ("cispo", _with(tokenpo.method("cispo", high=1.01, absolute=True), **RATIO), {**SEQUENCE, "epsilon_high": 1.01}),
    ("luspo", tokenpo.method("luspo", low=3e-4, high=4e-4), GSPO),
    ("luspo", summed("gspo"), GSPO),
    ("luspo", summed("gspo_token"), GSPO),
]


@seeds
@pytest.mark.parametrize(("theirs", "objective", "settings"), LOSSES)
def test_loss(theirs: str, objective: tokenpo.Objective, settings: dict, seed: int) -> None:
    sample = ragged(seed).alive()
    got, advantage = ours(objective, sample)
    close(got, loss(sample, advantage, loss_type=theirs, **settings))


@seeds
def test_sapo_of_sequences_is_ours_where_all_tokens_of_a_response_moved_alike(seed: int) -> None:
    """Ours has token ratios only, as the paper does."""
    sample = ragged(seed).alive()
    sample = sample.but(
        logprob=np.where(sample.mask, sample.old_logprob + (sample.logprob - sample.old_logprob)[:, :1], 0)
    )
    got, advantage = ours("sapo", sample)
    close(got, loss(sample, advantage, loss_type="sapo", importance_sampling_level="sequence"))


@seeds
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("options", [{}, {"k_pos": 1.0, "lambda_pos": 0.5, "k_neg": 0.5, "lambda_neg": 1.5}])
def test_vespo(options: dict, level: str, seed: int) -> None:
    """Its ratio is the response's at either level."""
    sample = ragged(seed).alive()
    got, advantage = ours("vespo", sample, **options)
    settings = {f"vespo_{name}": value for name, value in options.items()}
    close(got, loss(sample, advantage, loss_type="vespo", importance_sampling_level=level, **settings))


# The reference ---------------------------------------------------------------------------------------------------


def test_k3_grows_on_in_trl_as_in_ours() -> None:
    """A token three e-folds below the reference: k3 = e³ - 4, gradient 1 - e³. (verl stops at 10.)"""
    sample = _one(lp=-5.0, old=-5.0, ref=-2.0)
    theirs = loss(sample, np.zeros((1, 1)), loss_type="grpo", beta=1.0, use_bias_correction_kl=False)
    assert theirs.value == pytest.approx(np.exp(3) - 4, rel=1e-12)
    assert theirs.gradient[0, 0] == pytest.approx(1 - np.exp(3), rel=1e-12)
    close(run(tokenpo.method("grpo", beta=1.0), sample), theirs)


# Wrong responses that the policy has left ------------------------------------------------------------------------


@seeds
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("anchor", ["old", "rollout"])
def test_off_policy_sequence_mask(anchor: str, beta: float, seed: int) -> None:
    """TRL takes the sampler's log-probabilities where it has them; its divergence is the unbiased one by default."""
    sample = ragged(seed).alive()
    sample = sample.but(logprob=np.where(sample.mask, sample.logprob - 0.05, 0))
    got, advantage = ours("opsm", sample, delta=0.02, anchor=anchor, beta=beta)
    how = {"loss_type": "grpo", "off_policy_mask_threshold": 0.02, "beta": beta}
    close(got, loss(sample, advantage, sampled=anchor == "rollout", **how))
    weight = got.terms["weight"][sample.mask]
    assert 0 < (weight == 0).sum() < len(weight)


# One token, and the entropy bonus


def _one(*, lp: float, old: float, ref: float = 0.0) -> Sample:
    one = np.ones((1, 1))
    return of(one, [1.0], [0], logprob=lp * one, old_logprob=old * one, ref_logprob=ref * one)


@seeds
def test_the_entropy_bonus_is_ours_under_a_token_mean(seed: int) -> None:
    sample, bonus = ragged(seed).alive(), (EntropyBonus(0.1),)
    got, advantage = ours(dataclasses.replace(tokenpo.method("dapo", dual=None), penalties=bonus), sample)
    close(got, loss(sample, advantage, loss_type="dapo", epsilon_high=0.28, entropy_coef=0.1))
    assert np.abs(got.entropy_gradient).sum() == pytest.approx(0.1, rel=1e-10)

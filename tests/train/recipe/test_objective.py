"""What goes with every method: the settings of a recipe that add stages to its objective."""

import math

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.core import parts
from tokenpo.core.parts import K1, K2, K3, Criterion, Mean, ReferenceKl, Rejection, RolloutCorrection, Total
from tokenpo.methods import method
from tokenpo.train.recipe.config import Config, parse_config
from tokenpo.train.recipe.objective import build_objective, warnings


def recipe(**sections) -> Config:
    return parse_config(sections, "test")


def test_a_correction_joins_the_weights() -> None:
    objective = build_objective(recipe(method={"name": "adv_reweight"}, rollout={"correction": {}}))
    assert objective.weights == (*method("adv_reweight").weights, RolloutCorrection())
    assert "rollout_logprob" in objective.needs


@pytest.mark.parametrize(
    ("asked", "estimator"),
    [
        ({}, K3()),
        ({"estimator": "k1"}, K1()),
        ({"estimator": "k2"}, K2()),
        ({"estimator": "k1", "straight_through": True}, parts.StraightThrough(K1())),
    ],
)
def test_a_penalty_joins_the_penalties(asked: dict, estimator) -> None:
    objective = build_objective(recipe(method={"name": "tepo"}, train={"reference_kl": {"beta": 0.2, **asked}}))
    assert objective.penalties == (*method("tepo").penalties, ReferenceKl(0.2, estimator))


def test_the_unbiased_divergence_is_an_option_of_every_method() -> None:
    """As TRL's use_bias_correction_kl makes it (tests/hosts/trl/test_parts.py), which names DeepSeek-V3.2's."""
    asked = {"beta": 0.2, "unbiased": True}
    objective = build_objective(recipe(method={"name": "dapo"}, train={"reference_kl": asked}))
    assert objective.penalties == (parts.Reweighted(ReferenceKl(0.2, K3())),)
    for more in ({"estimator": "k2"}, {"straight_through": True}):
        with pytest.raises(TokenPOError, match=r"reference_kl\.unbiased weighs k1 or k3 by the ratio"):
            build_objective(recipe(train={"reference_kl": {**asked, **more}}))


TIS = RolloutCorrection()


@pytest.mark.parametrize(
    ("asked", "weights"),
    [
        ({"level": "sequence"}, (RolloutCorrection(sequence=True),)),
        ({"mode": "mask", "cap": 3.0, "floor": 0.2}, (RolloutCorrection(mask=True, cap=3.0, floor=0.2),)),
        ({"level": "geometric", "floor": 0.9, "cap": "none"}, (RolloutCorrection(True, False, math.inf, 0.9, True),)),
        ({"normalise": True}, (parts.NormalisedWeight(TIS, parts.RolloutMean(TIS)),)),
        (
            {"reject": [{"over": "mean", "low": 0.9, "high": 1.1}, {"of": "k3", "over": "every", "high": 2}]},
            (TIS, Rejection((Criterion(Mean(), 0.9, 1.1), Criterion(parts.Every(), high=2, of=K3())))),
        ),
        (
            {"level": "none", "reject": [{"of": "k2", "over": "total", "high": 1}, {"low": 0.1}]},
            (Rejection((Criterion(Total(), high=1, of=K2()), Criterion(parts.EachToken(), 0.1))),),
        ),
        ({"preset": "mis-k3", "leaves": True}, (Rejection((Criterion(Mean(), high=0.01, of=K3()),), leaves=True),)),
        ({"preset": "icepop"}, (RolloutCorrection(mask=True, floor=0.5, cap=5.0),)),
    ],
)
def test_every_key_of_a_correction(asked: dict, weights) -> None:
    assert build_objective(recipe(rollout={"correction": asked})).weights == weights


def test_a_preset_may_bypass_the_old_policy() -> None:
    assert build_objective(recipe(rollout={"correction": {"preset": "bypass"}})).bypass


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        *(({"rollout": {"correction": asked}}, message) for asked, message in (
            ({"preset": "tis", "cap": 3}, "with a preset only leaves can be set: drop cap, or preset"),
            ({"level": "none"}, "without a weight and without reject it corrects nothing"),
        )),
        ({"rollout": {"correction": {"level": "tokens"}}}, "rollout.correction.level = 'tokens'"),
        ({"rollout": {"correction": {"reject": [{"over": "max"}]}}}, "reject.0 = 'max': input should be 'token'"),
        ({"train": {"reference_kl": {"beta": 0.1, "estimator": "k4"}}}, "train.reference_kl.estimator = 'k4'"),
    ],
)  # fmt: skip
def test_refused_settings(sections: dict, message: str) -> None:
    with pytest.raises(TokenPOError, match=message):
        build_objective(recipe(**sections))


CORRECTED = {"rollout": {"correction": {}}}
NEVER, MOVED = "RolloutCorrection cannot act", "takes the policy for the one that sampled"
IDLE, RATE = "one update per rollout batch", "train.lr is not set"


def runs(name: str, **train: float) -> dict:
    return {"method": {"name": name}, "train": train}


@pytest.mark.parametrize(
    ("sections", "note"),
    [
        (CORRECTED, NEVER),
        ({"rollout": {"correction": {}, "rescore": True}}, None),
        ({"rollout": {"correction": {"preset": "bypass_pg_is"}}}, None),  # by the current policy
        (runs("vaco"), "Aligned, RolloutCorrection cannot act"),
        (runs("m2po_rollout"), "Nearest cannot act"),
        ({"rollout": {"correction": {"preset": "bypass_pg_is"}, "rescore": True}}, None),
        ({"rollout": {"correction": {"preset": "bypass_pg_geo_rs"}, "rescore": True}}, MOVED),
        *((runs(name, minibatches=4), MOVED) for name in ("gpg", "opo", "raft")),
        *((runs(name, minibatches=4), None) for name in ("raft_pp", "grpo")),
        *((runs(name, minibatches=1), None) for name in ("gpg", "opo", "raft", "raft_pp", "grpo")),
        *((runs(name, minibatches=1), IDLE) for name in ("tepo", "kl_cov")),
        *((runs(name, minibatches=1, epochs=2), None) for name in ("tepo", "kl_cov", "grpo")),
        ({"model": {"path": "a/model"}}, RATE),
        ({"model": {"path": "a/model"}, "train": {"lr": 2e-4}}, None),
        ({"critic": {}}, "the section [critic] is not read: dapo has no critic"),
        ({"teacher": {"hint": "see"}}, "the section [teacher] is not read: dapo has no teacher and there is no"),
    ],
)
def test_unlikely_settings_are_noted(sections: dict, note: str | None) -> None:
    config = recipe(**sections)
    notes = warnings(build_objective(config), config)
    assert len(notes) == (note is not None) and all(str(note) in said for said in notes)

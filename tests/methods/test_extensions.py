"""What any method can have, as keywords of one function, and as tables of a text file.

Corrections as other frameworks make them, each as one straight line of NumPy, and the presets. Written from what their
settings mean, not from their code: SkyRL, slime's TIS and its example with rejection, OpenRLHF, NeMo-RL, AReaL,
ms-swift. verl's and TRL's own functions are called in tests/foreign.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

import tokenpo
from oracle_support import Sample, by_hand, ragged, run
from tokenpo.base.errors import OutOfRange, TokenPOError, UnknownName
from tokenpo.core.parts import (
    K1,
    GroupOverlong,
    LogLikelihood,
    NormalisedWeight,
    ReferenceKl,
    Rejection,
    RolloutCorrection,
    SoftOverlong,
    TeacherCredit,
    TeacherKl,
    Total,
    Weight,
)
from tokenpo.core.parts.correction import Criterion, EachToken, Every, Mean, RolloutMean
from tokenpo.core.parts.loss import K2
from tokenpo.methods import Teaching, build_method, extended, from_text
from tokenpo.methods.extensions import PRESETS, Preset

GRPO = tokenpo.method("grpo")


def test_every_keyword_adds_to_its_slot() -> None:
    shaping = (SoftOverlong(8, 2), GroupOverlong())
    correction = Preset((RolloutCorrection(),), bypass=True, plain=True)
    made = extended(
        GRPO, reference=ReferenceKl(0.1, K1()), correction=correction, teacher=Teaching(0.2, "penalty"), shaping=shaping
    )
    assert made.shaping == shaping
    assert made.penalties == (TeacherKl(0.2), ReferenceKl(0.1, K1()))
    assert made.weights == (RolloutCorrection(),) and made.bypass and made.surrogate == LogLikelihood()
    assert extended(GRPO, teacher=Teaching(0.3)).credit == TeacherCredit(GRPO.credit, 0.3, 0.0)
    assert extended(GRPO) == GRPO
    assert extended(GRPO, correction="mis-geo") == tokenpo.corrected(GRPO, "mis_geo")


def test_all_that_a_method_has_already_is_said_at_once() -> None:
    both = extended(GRPO, reference=ReferenceKl(0.1), correction="tis", teacher=Teaching(0.1))
    labels = {"reference": "a.kl", "correction": "a.correction", "teacher": "a.coef"}
    with pytest.raises(TokenPOError) as caught:
        extended(both, reference=ReferenceKl(0.2), correction="icepop", teacher=Teaching(1.0), labels=labels)
    head, *bullets = str(caught.value).splitlines()
    assert head == "3 faults:"
    for bullet, label, own in zip(bullets, labels.values(), ("ReferenceKl", "RolloutCorrection", "grpo"), strict=True):
        assert bullet.startswith(f"- {label} ") and own in bullet
    with pytest.raises(TokenPOError, match=r"^a\.kl comes on top of ReferenceKl"):
        extended(both, reference=ReferenceKl(0.2), labels=labels)
    # A correction that only rejects weighs nothing twice.
    assert isinstance(extended(both, correction="mis_geo").weights[-1], Rejection)


def test_a_quoted_line_break_starts_no_bullet() -> None:
    assert str(TokenPOError("a\nb", "c")).splitlines() == ["2 faults:", "- a\\nb", "- c"]
    assert str(TokenPOError("a\nb")) == "a\\nb"


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({}, TokenPOError, r"^my\.table: an option is missing, .*'beta'"),
        ({"beta": 0.1, "estimater": "k1"}, UnknownName, r"^my.table has no option 'estimater'; did you mean"),
        ({"beta": 0.0}, OutOfRange, r"^my.table: beta is 0.0, expected a finite number > 0"),
        ({"beta": "x"}, TokenPOError, r"^my.table: option beta = 'x' must be a number"),
        ({"beta": 0.1, "unbiased": True, "estimator": "k2"}, TokenPOError, "unbiased weighs k1 or k3"),
    ],
)
def test_a_mistake_in_a_table_is_named(table: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        from_text.read("my.table", from_text.reference_kl, table)


def test_a_table_of_a_file_is_read_as_python_would_write_it() -> None:
    made = from_text.read("c", from_text.correction, {"cap": "none", "level": "sequence"})
    assert made == Preset((RolloutCorrection(sequence=True, cap=float("inf")),))
    assert build_method("dapo", {"dual": "none"}) == tokenpo.method("dapo", dual=None)
    assert build_method("gdpo", {"weights": [1.0, 2.0]}) == tokenpo.method("gdpo", weights=(1.0, 2.0))
    with pytest.raises(UnknownName, match="has no option 'name'"):
        build_method("dapo", {"name": "x"})


seeds = pytest.mark.parametrize("seed", range(2))


def _sample(seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    sample = ragged(seed)
    x = rng.choice([1e-4, 0.02, 0.8], size=(len(sample.mask), 1)) * rng.normal(size=sample.mask.shape)
    far = 2.0 * (rng.random((len(sample.mask), 1)) < 0.2)  # the sampler found some responses e⁻² as likely a token
    return sample.but(rollout_logprob=np.where(sample.mask, np.minimum(sample.old_logprob + x, -1e-4) - far, 0))


def _rows(f: Callable[[np.ndarray], float], rho: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """f of each response's ρ, at all of its tokens; 1 for a response without tokens."""
    return np.array([[f(row[kept]) if kept.any() else 1.0] * len(row) for row, kept in zip(rho, mask, strict=True)])


def _product(row: np.ndarray) -> float:
    return float(np.prod(row))


def _geometric(row: np.ndarray) -> float:
    return float(np.prod(row) ** (1 / len(row)))


def _between(x: np.ndarray, low: float, high: float) -> np.ndarray:
    return (x >= low) & (x <= high)


def _reject(*criteria: Criterion) -> Rejection:
    return Rejection(criteria)


RAW = RolloutCorrection(cap=math.inf)
BATCH = RolloutCorrection(cap=1.3)
# Framework and settings, the same in parts, and what comes of it: the weight [N, T] from ρ and the mask.
CASES: dict[str, tuple[tuple[Weight, ...], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "SkyRL tis_ratio_type=sequence, cap 5": (
        (RolloutCorrection(sequence=True, cap=5.0),), lambda rho, mask: np.minimum(_rows(_product, rho, mask), 5)
    ),
    "SkyRL sequence_mask_metric=product": (
        (_reject(Criterion(Total(), 0.5, 2.0)),), lambda rho, mask: _between(_rows(_product, rho, mask), 0.5, 2)
    ),
    "SkyRL token_mask_is_threshold 0.9 .. 1.1, with token TIS": (
        (RolloutCorrection(), _reject(Criterion(EachToken(), 0.9, 1.1))),
        lambda rho, mask: np.minimum(rho, 2) * _between(rho, 0.9, 1.1),
    ),
    "slime --use-tis, --tis-clip-low 0.5; OpenRLHF tis": (
        (RolloutCorrection(floor=0.5),), lambda rho, mask: np.clip(rho, 0.5, 2)
    ),
    "slime mis_function; OpenRLHF icepop": (
        PRESETS["mis"].weights, lambda rho, mask: np.where(_between(rho, 0.5, 2), rho, 0)
    ),
    "OpenRLHF, NeMo-RL seq-mask-tis 0.5 5": (
        PRESETS["seq_mask_tis"].weights, lambda rho, mask: rho * _between(_rows(_geometric, rho, mask), 0.5, 5)
    ),
    "slime mis: tis sequence truncate, rs geometric, veto": (
        (RolloutCorrection(sequence=True), _reject(Criterion(Mean(), 0.5, 2.0), Criterion(Every(), 0.3))),
        lambda rho, mask: np.minimum(_rows(_product, rho, mask), 2)
        * _between(_rows(_geometric, rho, mask), 0.5, 2)
        * (_rows(np.min, rho, mask) >= 0.3),
    ),
    "slime mis: tis token, batch normalised, in one micro-batch": ((NormalisedWeight(BATCH, RolloutMean(BATCH)),),
        lambda rho, mask: np.minimum(rho, 1.3) / np.minimum(rho, 1.3)[mask].mean()),
    "slime mis: tis geometric clip": ((RolloutCorrection(sequence=True, geometric=True, floor=0.9, cap=1.1),),
        lambda rho, mask: np.clip(_rows(_geometric, rho, mask), 0.9, 1.1)),
    "AReaL sequence, mask, kl_k2, mean": ((RAW, _reject(Criterion(Mean(), high=0.02, of=K2()))),
        lambda rho, mask: rho * (_rows(lambda row: float((np.log(row) ** 2 / 2).mean()), rho, mask) <= 0.02)),
}  # fmt: skip


@seeds
@pytest.mark.parametrize("name", CASES)
def test_as_other_frameworks_weigh(name: str, seed: int) -> None:
    """The weight, and the gradient: that of the method times the weight, over all tokens."""
    weights, oracle = CASES[name]
    sample = _sample(seed)
    plain = tokenpo.method("dapo")
    got = run(dataclasses.replace(plain, weights=weights), sample)
    rho = np.exp(np.where(sample.mask, sample.old_logprob - sample.rollout_logprob, 0))
    expected = oracle(rho, sample.mask).astype(float)
    np.testing.assert_allclose(got.terms["weight"][sample.mask], expected[sample.mask], rtol=1e-10)
    np.testing.assert_allclose(
        got.gradient, run(plain, sample).gradient * expected * sample.mask, rtol=1e-10, atol=1e-17
    )
    assert len(set(np.round(expected[sample.mask], 12))) > 1
    assert 0 in expected[sample.mask] or not any(isinstance(part, Rejection) for part in weights)


# The presets that no installed function is sure to be at hand for: slime's wants a GPU, OpenRLHF's is optional.
LINES = {"mis": "slime mis_function; OpenRLHF icepop", "seq_mask_tis": "OpenRLHF, NeMo-RL seq-mask-tis 0.5 5"}
VERLS = {"tis", "seq_tis", "icepop", "seq_mis", "mis_geo", "mis_k3", "bypass"}  # by names of ours


def test_every_preset_is_held_to_something() -> None:
    """To verl's in tests/foreign/test_verl_corrections.py, to TRL's default in test_trl_rollouts.py, else to a line."""
    others = {name for name in PRESETS if not name.startswith(("decoupled_", "bypass_")) and name != "disabled"}
    assert others == {*LINES, *VERLS, "trl"}
    assert all(CASES[case][0] == PRESETS[name].weights for name, case in LINES.items())


# Weights of responses of one token at 1, 1.0005, 1.5 and 6 times the sampler's probability now; the old policy, read by
# no bypass, agrees with the sampler. k3 of 1.5 is 0.5 - log 1.5 = 0.09, more than 0.01.
NEAR = [1, 1, 0, 0]
BYPASS = {
    "bypass": [1] * 4,
    "bypass_ppo_clip": [1] * 4,
    "bypass_ppo_clip_geo_rs": NEAR,
    "bypass_ppo_clip_k3_rs": NEAR,
    "bypass_pg_is": [1, 1.0005, 1.5, 2],
    "bypass_pg_token_icepop": [1, 1.0005, 1.5, 0],
    "bypass_pg_geo_rs": NEAR,
    "bypass_pg_geo_rs_seq_tis": [1, 1.0005, 0, 0],
    "bypass_pg_geo_rs_token_tis": [1, 1.0005, 0, 0],
}


def test_under_bypass_a_correction_follows_the_current_policy() -> None:
    sample = by_hand([[1.0], [1.0005], [1.5], [6.0]], [1, 0, 1, 0], p_old=0.1, rollout_logprob=[[np.log(0.1)]] * 4)
    for name, preset in PRESETS.items():
        got = run(tokenpo.corrected(tokenpo.method("grpo"), name), sample).terms["weight"][:, 0]
        np.testing.assert_allclose(got, BYPASS[name] if preset.bypass else [1] * 4, rtol=1e-12)


# One name of each; some keep no response of the laws' batches, so that nothing depends on their inputs.
LAWFUL = {preset: name for name, preset in PRESETS.items() if "_geo_rs" not in name}


@pytest.mark.parametrize("name", LAWFUL.values())
def test_a_preset_obeys_the_laws(name: str) -> None:
    tokenpo.check_method(tokenpo.corrected(tokenpo.method("grpo"), name))


def test_names_and_mistakes() -> None:
    grpo = tokenpo.method("grpo")
    leaving = tokenpo.corrected(grpo, "seq-mis", leaves=True)
    assert [getattr(part, "leaves", None) for part in leaving.weights] == [None, True]
    with pytest.raises(UnknownName, match="correction='icepoop' is not a choice; did you mean 'icepop'"):
        tokenpo.corrected(grpo, "icepoop")
    with pytest.raises(TokenPOError, match="correction tis rejects nothing: leaves=True goes with"):
        tokenpo.corrected(grpo, "tis", leaves=True)
    for name in ("tis", "seq_mis"):
        with pytest.raises(TokenPOError, match=r"comes on top of RolloutRatio\(\), by which dppo_tv weighs"):
            tokenpo.corrected(tokenpo.method("dppo_tv"), name)
    # What only rejects weighs nothing twice.
    assert tokenpo.corrected(tokenpo.method("dppo_tv"), "mis_geo").weights == PRESETS["mis_geo"].weights

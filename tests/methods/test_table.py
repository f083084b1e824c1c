"""The table of methods: its defaults are the published ones, written out, and its names are checked."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

import tokenpo
from tokenpo.core.parts import Clip, FixedBounds, GroupAdvantage, GroupOverlong, ReferenceKl, SoftOverlong
from tokenpo.methods import METHODS, gtpo, hapo, paper

GROUP = "GroupAdvantage(std=True, eps=1e-06)"
SCORE = "OldEntropyScore(quantile=0.8, released_sign=False)"
HIGH = "HighInResponse(quantile=0.8, current=False)"
SPURIOUS = "Drop(selection=Spurious(prob=0.002, quantile=0.75, current=True))"


def _clip(bounds: str, ratio: str = "TokenRatio()", dual: float | None = None) -> str:
    return f"Clip(bounds={bounds}, ratio={ratio}, dual={dual})"


def _fixed(low: float, high: float) -> str:
    return f"FixedBounds(low={low}, high={high})"


def _divergence(threshold: float, *, kl: bool) -> str:
    region = f"BinaryDivergence(threshold={threshold}, anchor=RolloutRatio(), kl={kl})"
    return f"DetachedClip(bounds={_fixed(1.0, 19.0)}, ratio=RolloutRatio(), region={region})"


# What each method is without options: credit, surrogate, aggregate, and further slots where they are used.
DEFAULTS = {
    "grpo": (GROUP, _clip(_fixed(0.2, 0.2)), "SequenceMean()", {}),
    "dr_grpo": (
        "GroupAdvantage(std=False, eps=1e-06)", _clip(_fixed(0.2, 0.2)), "ConstantLength(length=None)", {},
    ),
    "dapo": (GROUP, _clip(_fixed(0.2, 0.28), dual=10.0), "TokenMean()", {}),
    "gspo": (GROUP, _clip(_fixed(0.0003, 0.0004), "GeometricSequence()"), "SequenceMean()", {}),
    "gspo_token": (GROUP, _clip(_fixed(0.0003, 0.0004), "GeometricToken()"), "SequenceMean()", {}),
    "clip_cov": (
        GROUP, _clip(_fixed(1.0, 1.0)), "TokenMean()",
        {"weights": "Drop(selection=RandomCovariant(fraction=0.0002, cov_low=1.0, cov_high=5.0))"},
    ),
    "kl_cov": (
        GROUP, "Unclipped(ratio=TokenRatio())", "TokenMean()",
        {"penalties": "Anchor(coef=1.0, strength=TopCovariant(fraction=0.002))"},
    ),
    "tepo_v1": (GROUP, _clip(_fixed(0.2, 0.2), "GeometricToken()"), "TokenMean()", {}),
    "tepo": (
        GROUP, _clip(_fixed(0.2, 0.2), "GeometricToken()"), "TokenMean()",
        {
            "penalties": "MaskedKl(beta=1.0, decreasing=BelowOld(), estimator=K3(), to_reference=False)",
            "needs": "entropy, old_entropy",
        },
    ),
    "gtpo": (
        "PolarTokens(base=1.0, share=0.1, collection='with_zeros', whole_batch=False, clamp=None, threshold=0.0, "
        "eps=1e-06)",
        _clip(_fixed(0.2, 0.28)), "TokenMean()", {"needs": "old_entropy"},
    ),
    "grpo_s": (
        "PolarSequences(base=1.0, share=0.1, geometric=False, threshold=0.0)",
        _clip(_fixed(0.2, 0.28), "ArithmeticSequence()"), "SequenceMean()", {"needs": "old_entropy"},
    ),
    "tr_grpo": (
        GROUP, _clip(_fixed(0.2, 0.2)), "SequenceMean()",
        {
            "weights": "ProbabilityWeight(curve=Sigmoid(alpha=2.0, tau=9.0, mu=0.25, lower=1.0, upper=1.4, "
            "outside=False), old=False)",
        },
    ),
    "hapo": (
        "TokenGroupAdvantage(fallback=5.0, eps=1e-06)",
        _clip(f"AdaptiveBounds(low=0.2, high=0.2, alpha=1.0, score={SCORE})", dual=10.0), "TokenMean()",
        {
            "weights": f"Redistribution(beta=1.0, score={SCORE})",
            "temperature": "AdaptiveTemperature(tau=0.05, quantile=0.8, released_sign=False)",
            "needs": "old_entropy",
        },
    ),
    "adv_reweight": (
        GROUP, _clip(_fixed(0.2, 0.24), dual=10.0), "TokenMean()",
        {
            "weights": "ProbabilityWeight(curve=Affine(a=0.2), old=True)",
            "penalties": "ReferenceKl(beta=0.001, estimator=K3(), scale=None, inside=None)",
            "needs": "ref_logprob",
        },
    ),
    "cispo": (
        GROUP, f"DetachedClip(bounds={_fixed(1.0, 0.28)}, ratio=TokenRatio(), region=None)", "TokenMean()", {},
    ),
    "vineppo": (
        "WhitenedGain(by=Continuations(cuts=EveryTokens(every=16), count=9, mixed=False, start=False, own=False, "
        "lean=0.0), below=None)",
        _clip(_fixed(0.2, 0.2)), "TokenMean()", {"needs": "gain"},
    ),
    "spo": (
        "WhitenedGain(by=Continuations(cuts=Improbable(interval=5, below=0.9), count=9, mixed=False, start=False, "
        "own=False, lean=0.0), below=0.9)",
        _clip(_fixed(0.2, 0.2)), "TokenMean()",
        {"weights": "SignalWeight(signal=OverImprobable(below=0.9))", "needs": "gain"},
    ),
    "eb_cispo": (
        "ShrunkAdvantage(eps=1e-06)", f"DetachedClip(bounds={_fixed(1.0, 2.0)}, ratio=TokenRatio(), region=None)",
        "TokenMean()", {},
    ),
    "gmpo": (GROUP, "GeometricMean(low=0.4, high=0.4)", "SequenceMean()", {}),
    "sapo": (GROUP, "SoftGate(tau_pos=1.0, tau_neg=1.05)", "SequenceMean()", {}),
    "aspo": (
        GROUP,
        f"Asymmetric(bounds=SelectedBounds(selection={HIGH}, inside={_fixed(0.4, 0.4)}, outside={_fixed(0.2, 0.2)}), "
        "dual=3.0)",
        "TokenMean()", {"needs": "old_entropy"},
    ),
    "archer": (
        GROUP, _clip(f"SelectedBounds(selection={HIGH}, inside={_fixed(0.5, 0.5)}, outside={_fixed(0.2, 0.2)})"),
        "TokenMean()",
        {
            "penalties": f"ReferenceKl(beta=0.001, estimator=K3(), scale=Drop(selection={HIGH}), inside=None)",
            "needs": "old_entropy, ref_logprob",
        },
    ),
    "ce_gppo": (
        GROUP, f"GradientPreserving(bounds={_fixed(0.2, 0.2)}, beta1=0.75, beta2=1.0, dual=None)", "TokenMean()", {},
    ),
    "dppo_tv": (GROUP, _divergence(0.15, kl=False), "TokenMean()", {"needs": "rollout_logprob"}),
    "dppo_kl": (GROUP, _divergence(0.05, kl=True), "TokenMean()", {"needs": "rollout_logprob"}),
    "forking_tokens": (
        GROUP, _clip(_fixed(0.2, 0.28)), "TokenMean()",
        {
            "weights": "Keep(selection=HighInBatch(threshold=OldEntropyQuantile(quantile=0.8)))",
            "needs": "old_entropy",
        },
    ),
    "stapo": (
        GROUP, _clip(_fixed(0.2, 0.28)), "TokenMean()",
        {
            "weights": f"NormalisedWeight(weight={SPURIOUS}, mean=CurrentMean(weight={SPURIOUS}))",
            "needs": "entropy",
        },
    ),
    "edge_grpo": (
        f"EntropyDriven(group={GROUP})", _clip(_fixed(0.2, 0.2)), "SequenceMean()", {"needs": "old_entropy"},
    ),
    "rloo": ("LeaveOneOut()", _clip(_fixed(0.2, 0.2)), "TokenMean()", {}),
    "reinforce_pp": ("WhitenedReturn(beta=0.0)", _clip(_fixed(0.2, 0.2)), "TokenMean()", {}),
    "reinforce_pp_baseline": ("WhitenedBaseline()", _clip(_fixed(0.2, 0.2)), "TokenMean()", {}),
    "raft": ("PositiveReward()", "LogLikelihood()", "TokenMean()", {}),
    "raft_pp": ("PositiveReward()", _clip(_fixed(0.2, 0.2)), "TokenMean()", {}),
    "reinforce_rej": ("MixedReward()", _clip(_fixed(0.2, 0.2)), "TokenMean()", {}),
    "gpg": ("RescaledAdvantage()", "LogLikelihood()", "TokenMean()", {}),
    "opo": ("LengthWeighted()", "LogLikelihood()", "TokenMean()", {}),
    "sent": (
        GROUP, "Unclipped(ratio=TokenRatio())", "TokenMean()",
        {
            "penalties": "Anchor(coef=1.0, strength=CovarianceTails(fraction=0.0002, low_entropy=0.8, strong=2.0, "
            "weak=0.5, current=True))",
            "needs": "entropy",
        },
    ),
    "s_grpo": (
        GROUP, _clip(_fixed(0.2, 0.2)), "SequenceMean()",
        {"weights": "RowNormalised(weight=Keep(selection=RandomTokens(fraction=0.5, always=0)))"},
    ),
    "tw_grpo": (
        "GroupAdvantage(std=True, eps=0.0001)", _clip(_fixed(0.2, 0.28)), "TokenMean()",
        {"weights": "SignalWeight(signal=PositionWeight(alpha=1.7))", "needs": "divergence"},
    ),
    "nthr": (
        GROUP, _clip(_fixed(0.2, 0.2)), "SequenceMean()",
        {
            "weights": "SignalWeight(signal=SparedTokens(beta=1.0, eta=None))",
            "penalties": "ReferenceKl(beta=0.0001, estimator=K3(), scale=None, inside=None)",
            "needs": "influence, ref_logprob",
        },
    ),
    "thr": (
        GROUP, _clip(_fixed(0.2, 0.2)), "SequenceMean()",
        {"weights": "SignalWeight(signal=HiddenReward(p=0.1, mask=True))", "needs": "influence"},
    ),
    "arm": (
        f"ConfidenceShift(alpha=0.1, fraction=0.2, only_correct=False, group={GROUP})",
        _clip(_fixed(0.2, 0.28)), "TokenMean()", {"needs": "prompt_logprob"},
    ),
    "lopti": (
        GROUP, _clip(_fixed(0.2, 0.24), dual=10.0), "TokenMean()",
        {
            "penalties": "ReferenceKl(beta=0.001, estimator=K3(), scale=None, inside=None)",
            "passes": "OldProbability(threshold=0.4, below=True) · OldProbability(threshold=0.4, below=False)",
            "needs": "ref_logprob",
        },
    ),
    "ha_dw": (
        GROUP, _clip(_fixed(0.2, 0.2)), "SequenceMean()",
        {"weights": "DifficultyWeight(scale=1.3, ease=Ease(history=10, current=False))"},
    ),
    "skywork_entropy": (
        GROUP, _clip(_fixed(0.2, 0.2)), "TokenMean()",
        {
            "penalties": "EntropyBonus(coef=GatedCoefficient(target=0.2, delta=0.0001, largest=0.005, initial=0.0, "
            "released=False))",
            "needs": "entropy, old_entropy",
        },
    ),
    "aer": (
        GROUP, _clip(_fixed(0.2, 0.2)), "TokenMean()",
        {
            "penalties": "EntropyBonus(coef=DifficultyCoefficient(tau=0.4, rho=0.5, delta=0.0001, largest=0.005, "
            "initial=0.0, proportional=False))",
            "needs": "entropy, old_entropy",
        },
    ),
    "t_spmo": ("PrefixTree(pairs=True)", _clip(_fixed(0.2, 0.2)), "TokenMean()", {"needs": "token_ids"}),
    "grpo_passk": ("BestMargin(std=True, eps=1e-06)", _clip(_fixed(0.2, 0.2)), "TokenMean()", {}),
    "maxrl": (
        "OverMean(centred=True, hopeless=False, eps=1e-06)", _clip(_fixed(0.2, 0.2), dual=3.0), "TokenMean()", {},
    ),
    "hmpo": (
        GROUP, _clip(_fixed(0.2, 0.28), dual=10.0), "TokenMean()",
        {
            "shaping": "MedianLength(scale=1.0, shift=0.8, cap=1.0, additive=False, threshold=0.0, by_score=False)",
            "penalties": "ReferenceKl(beta=0.001, estimator=K3(), scale=None, inside=None)",
            "needs": "ref_logprob",
        },
    ),
    "topr": (
        "SignedOutcome(threshold=0.5)", "DetachedClip(bounds=Tapered(), ratio=ProductSequence(), region=None)",
        "ConstantLength(length=1.0)", {},
    ),
    "luspo": (GROUP, _clip(_fixed(0.2, 0.2), "GeometricSequence()"), "ConstantLength(length=1.0)", {}),
    "vespo": (
        GROUP, "SoftWeight(positive=Gamma(shape=2.0, rate=3.0), negative=Gamma(shape=3.0, rate=2.0), "
        "inside=None)", "TokenMean()", {},
    ),
    "dhpo": (
        GROUP, f"MixOfMins(token={_fixed(0.2, 0.28)}, sequence={_fixed(0.0003, 0.0004)}, share=EvenShare())",
        "SequenceMean()", {},
    ),
    "egspo": (
        GROUP, _clip(_fixed(0.2, 0.28)), "TokenMean()",
        {
            "weights": "Attenuated(selection=HighInBatch(threshold=OldEntropyQuantile(quantile=0.8)), attenuation=0.5, "
            "chord=False)",
            "needs": "old_entropy",
        },
    ),
    "opsm": (
        GROUP, _clip(_fixed(0.2, 0.2)), "SequenceMean()",
        {"weights": "Drop(selection=Strayed(delta=0.5, sampler=False))"},
    ),
    "rollout_is": (
        GROUP, f"DetachedClip(bounds={_fixed(1.0, math.inf)}, ratio=RolloutRatio(), region=Between(low=0.2, high=0.2))",
        "TokenMean()", {"needs": "rollout_logprob"},
    ),
    "prime_rl": (
        "GroupAdvantage(std=False, eps=1e-06)", "Unclipped(ratio=RolloutRatio())", "TokenMean()",
        {
            "weights": "Keep(selection=NearSampler(low=0.2, high=0.2))",
            "penalties": "SquaredLogRatio(coef=0.001)",
            "needs": "rollout_logprob",
        },
    ),
    "dro": (GROUP, "Regularised()", "TokenMean()", {"penalties": "ToOld(beta=0.05)"}),
    "m2po": (GROUP, _clip("Budgeted(reach=Reach(budget=0.04), low=0.3, high=0.5)"), "TokenMean()", {}),
    "m2po_rollout": (
        GROUP, _clip(_fixed(0.2, 0.2)), "TokenMean()",
        {"weights": "Keep(selection=Nearest(most=0.04))", "needs": "rollout_logprob"},
    ),
    "fipo": (
        GROUP, _clip(_fixed(0.2, 0.2)), "TokenMean()",
        {"weights": "FutureWeight(decay=32.0, least=1.0, most=1.2, safety=4.0, dual=None)"},
    ),
    "real": ("Label()", "ByLabel()", "SequenceMean()", {"weights": "SignalWeight(signal=Slope(tau=0.5))"}),
    "gdpo": (
        "Decoupled(eps=0.0001, batch_eps=0.0001, tokens=False, leave_one_out=False, weights=())",
        _clip(_fixed(0.2, 0.2)), "TokenMean()", {"needs": "rewards"},
    ),
    "otb": (
        "OptimalBaseline(zero_tail=True, steps=False, cap=None)", _clip(_fixed(0.2, 0.2)), "TokenMean()",
        {"needs": "old_collision"},
    ),
    "mt_grpo": (
        "FirstTurn(coef=1.0, outcome_rewards=1, group=GroupAdvantage(std=True, eps=0.0001))", _clip(_fixed(0.2, 0.2)),
        "TokenMean()", {"needs": "rewards, turn"},
    ),
    "gigpo": (
        "GroupInGroup(step=RewardToGo(gamma=1.0, anchored=True, std=False, eps=1e-06), omega=1.0, by_turn=True)",
        _clip(_fixed(0.2, 0.2)), "TokenMean()", {"needs": "anchor, token_reward, turn"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_defaults(name: str) -> None:
    """Name by name what methods run with when nobody says otherwise."""
    credit, surrogate, aggregate, others = DEFAULTS[name]
    slots = {
        "shaping": "-", "credit": credit, "surrogate": surrogate, "weights": "-", "penalties": "-",
        "aggregate": aggregate, "temperature": "-", "passes": "-", "needs": "-", **others,
    }  # fmt: skip
    lines = [f"objective {name}", *(f"  {slot:<12}{choice}" for slot, choice in slots.items())]
    assert str(tokenpo.method(name)).splitlines() == lines


def test_tepo_takes_gspos_clip() -> None:
    from tokenpo.methods.tepo import GSPO_CLIP

    assert tokenpo.method("tepo", **GSPO_CLIP).surrogate.bounds == FixedBounds(3e-4, 4e-4)


def test_tr_grpo_warns_only_where_its_weight_would_be_clipped_away(recwarn: pytest.WarningsRecorder) -> None:
    tokenpo.method("tr_grpo")
    tokenpo.method("tr_grpo", weight_placement="ratio", upper=1.2)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"a weight above 1\.2 clips confident correct tokens, and it may be 1\.4"):
        tokenpo.method("tr_grpo", weight_placement="ratio")


def test_redistribution_may_be_nothing() -> None:
    """beta 0 is a factor of 1, and allowed; the builder leaves the stage out."""
    from tokenpo.methods.hapo import Redistribution

    score = tokenpo.method("hapo").weights[0].score
    assert Redistribution(0.0, score).beta == 0


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_value(name: str) -> None:
    """Frozen, equal to itself built again, hashable; its builder by name and by attribute are the same."""
    one, other = tokenpo.method(name), getattr(tokenpo.methods, name)()
    assert one == other
    assert hash(one) == hash(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "another"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_names_its_paper(name: str) -> None:
    source = paper(name)
    assert re.fullmatch(r"\d{4}\.\d{5}", source.arxiv)
    assert re.fullmatch(r"(v\d+(\.\.v\d+)?)?", source.version)
    assert source.reference.startswith(f"arXiv:{source.arxiv}")
    assert source.reference == source.reference.strip()


@pytest.mark.parametrize("name", METHODS)
def test_code_that_was_read_is_named(name: str) -> None:
    """Repository, commit and file, or package, version and file: for every provenance "code", and for no other."""
    source = paper(name)
    read = r"([\w.-]+/[\w.-]+@[0-9a-f]{7}|(trl|verl) \d+\.\d+\.\d+):[\w./-]+\.(py|sh)"
    wanted = rf"{read}(; {read})*" if source.provenance == "code" else ""
    assert re.fullmatch(wanted, source.code), f"{name}: {source.provenance}, {source.code!r}"


def test_a_version_under_an_identifier_of_its_own_is_named() -> None:
    source = paper("tepo")
    assert (source.version, source.later) == ("v1", ("v2", "2604.12736"))
    assert source.reference == "arXiv:2510.09369 v1; v2 is 2604.12736"


def test_unknown_names_name_the_nearest() -> None:
    with pytest.raises(tokenpo.UnknownName, match=r"^no method is called 'grop': did you mean 'grpo'\?$"):
        tokenpo.method("grop")
    with pytest.raises(tokenpo.UnknownName, match=r"^no method is called 'xyzzy': known: adv_reweight, "):
        paper("xyzzy")
    with pytest.raises(tokenpo.UnknownName, match=r"^no method is called 'gpro': did you mean 'grpo'\?$"):
        tokenpo.method("gpro")
    for build in (lambda: tokenpo.method("dapo", hihg=1), lambda: tokenpo.methods.dapo(hihg=1)):
        with pytest.raises(tokenpo.UnknownName, match=r"^method dapo has no option 'hihg'; did you mean 'high'\?$"):
            build()


def test_options_that_switch_a_stage_on() -> None:
    """Of each option that adds a stage: the stage is there, and its values are the option's."""
    assert tokenpo.method("dapo", overlong_length=20, overlong_cache=4).shaping == (SoftOverlong(20, 4),)
    assert tokenpo.method("grpo", beta=0.04).penalties == (ReferenceKl(0.04),)
    for name in ("gtpo", "grpo_s"):
        shaping = tokenpo.method(name, group_overlong=True, threshold=0.5).shaping
        assert shaping == (GroupOverlong(easy=0.5, scale=0.5, threshold=0.5),)
        assert tokenpo.method(name, threshold=0.5).credit.threshold == 0.5
    assert tokenpo.method("tr_grpo", beta=0.1).penalties == (ReferenceKl(0.1),)
    assert tokenpo.method("adv_reweight", beta=0.0).penalties == ()
    assert tokenpo.method("tepo", beta=0.0).penalties == ()


def test_hapos_parts_switch_off_alone() -> None:
    full = tokenpo.method("hapo")
    plain = Clip(FixedBounds(0.2, 0.2), dual=10.0)
    assert tokenpo.method("hapo", tau=0.0) == dataclasses.replace(full, temperature=None)
    assert tokenpo.method("hapo", beta=0.0) == dataclasses.replace(full, weights=())
    assert tokenpo.method("hapo", alpha=0.0) == dataclasses.replace(full, surrogate=plain)
    assert tokenpo.method("hapo", token_mean_advantage=False) == dataclasses.replace(full, credit=GroupAdvantage())


def test_stages_of_one_paper_have_its_defaults() -> None:
    """For who mixes them by hand."""
    assert gtpo(a1=2.0, a2=0.3).credit == type(gtpo().credit)(2.0, 0.3)
    assert tokenpo.methods.grpo_s(b1=2.0, b2=0.3).credit == type(tokenpo.methods.grpo_s().credit)(2.0, 0.3)
    assert hapo().credit == type(hapo().credit)()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dapo", {"overlong_length": 8}, "dapo: the soft overlong penalty needs both overlong_length and"),
        ("dapo", {"overlong_cache": 8}, "dapo: the soft overlong penalty needs both overlong_length and"),
        (
            "dapo",
            {"overlong_length": 4, "overlong_cache": 8},
            "dapo: cache of SoftOverlong is 8, expected a whole number in 1..4, the length",
        ),
        ("gtpo", {"entropy_clamp": (0.3, 0.2)}, "gtpo: entropy_clamp is (0.3, 0.2), expected (low, high) with"),
        ("gtpo", {"entropy_clamp": (-0.1, 0.2)}, "gtpo: entropy_clamp is (-0.1, 0.2), expected (low, high) with"),
        (
            "gtpo",
            {"entropy_clamp": (0.1, 0.2, 0.3)},
            "gtpo: option entropy_clamp = (0.1, 0.2, 0.3) must be two numbers",
        ),
        ("hapo", {"beta": 1.01}, "hapo: beta is 1.01, expected a number in [0, 1], or advantages would change sign"),
        ("hapo", {"beta": -0.1}, "hapo: beta is -0.1, expected a number in [0, 1], or advantages would change sign"),
        (
            "hapo",
            {"low": 0.6, "alpha": 1.0},
            "hapo: low · (1 + alpha) of AdaptiveBounds is 1.2, expected a number in [0, 1]",
        ),
    ],
)
def test_options_out_of_range_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(tokenpo.TokenPOError, match=re.escape(message)):
        tokenpo.method(name, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gtpo", {"entropy_clamp": (0.0, 0.0)}),
        ("gtpo", {"entropy_clamp": (0.2, 0.28)}),
        ("hapo", {"low": 0.5}),
        ("hapo", {"high": 0.0, "low": 0.0}),
        ("hapo", {"low": 0.8, "alpha": 0.25}),
        ("gtpo", {"entropy_clamp": (0.0, 0.3)}),
        ("gmpo", {"low": 0.0, "high": 0.0}),
        ("s_grpo", {"fraction": 1.0, "always": 0}),
        ("sent", {"strong": 0.0, "weak": 0.0, "fraction": 1.0, "low_entropy": 1.0}),
        ("skywork_entropy", {"delta": 0.0, "start": 0.005}),
    ],
)
def test_options_on_the_edge_are_accepted(name: str, options: dict) -> None:
    assert tokenpo.method(name, **options).name == name


def test_a_length_of_zero_is_not_ignored() -> None:
    with pytest.raises(tokenpo.TokenPOError, match="dapo: overlong_length is 0, expected a whole number >= 1"):
        tokenpo.method("dapo", overlong_length=0, overlong_cache=4)

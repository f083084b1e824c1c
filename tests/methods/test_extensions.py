"""What any method can have, as keywords of one function, and as tables of a text file."""

import pytest

import tokenpo
from tokenpo.base.errors import OutOfRange, TokenPOError, UnknownName
from tokenpo.core.parts import (
    K1,
    GroupOverlong,
    LogLikelihood,
    ReferenceKl,
    Rejection,
    RolloutCorrection,
    SoftOverlong,
    TeacherCredit,
    TeacherKl,
)
from tokenpo.methods import Teaching, build_method, extended, from_text
from tokenpo.methods.extensions import Preset

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
        ({}, TokenPOError, "^my.table lacks beta: give it$"),
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

"""The page "which method for my run?": no sentence whose number does not say it, and a page that is current."""

from __future__ import annotations

import doctest
import math

import pytest
import which_method as which

from tokenpo.lab.exact.study import Number


def test_the_page_is_current() -> None:
    assert which.PAGE.read_text(encoding="utf-8") == which.page(), "python tools/site/which_method.py"
    assert doctest.testmod(which).failed == 0 == doctest.testmod(which.kl_law).failed


@pytest.mark.parametrize(
    ("x", "operator", "y", "true"),
    [
        (Number(0.3, 0.03), ">", Number(0.1, 0.04), True),  # 0.2 ± 0.05
        (Number(0.3, 0.06), ">", Number(0.1, 0.08), False),  # 0.2 ± 0.1: not beyond two
        (Number(0.3, 0.06), "=", Number(0.1, 0.08), True),
        (Number(0.1, 0.03), "<", Number(0.3, 0.04), True),
        (Number(0.3, 0.03), "<", Number(0.1, 0.04), False),
        (Number(math.inf), "=", Number(math.inf), True),
        (Number(math.inf), ">", Number(3, 1), True),
    ],
)
def test_beyond_two_standard_errors(x: Number, operator: str, y: Number, true: bool) -> None:
    assert which.holds(x, operator, y) is true


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grpo two_modes init/useful > 1", "is not > 1"),
        ("cispo all drift/toward < dapo", "is not <"),
        ("dapo median train/batches > grpo", "is not >"),
        ("nobody two_modes init/useful", "has no 'nobody'"),
        ("grpo two_modes", "not of the form"),
        ("bed: cispo budget train-area > dapo", "the bed says .*refuted"),
        ("bed: dapo long_chains train-area > grpo", "the bed says .*smaller than 0.03"),
        ("bed: sapo budget train-area < dapo", "no claim about these"),
        ("law: tr_grpo P1,budget,first train-area = dapo", "the study of the KL says smaller"),
        ("law: sapo P1,budget,first train-area = dapo", "the study of the KL has no claim about these"),
        ("longer: tr_grpo held train-area = dapo", "the study on a GPU says smaller"),
    ],
)
def test_a_sentence_that_is_stale_is_refused(text: str, said: str) -> None:
    with pytest.raises(which.Stale, match=said):
        which.Evidence.of(text).told()

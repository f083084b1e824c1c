"""Methods with a teacher by hand, and what every form must do where the teacher is the student."""

import dataclasses
import math

import numpy as np
import pytest

import tokenpo
from oracle_support import assemble, by_hand, moves, outcome, run, tensors, worked
from tokenpo.base.errors import TokenPOError
from tokenpo.core.parts import K1, K3, StraightThrough, TeacherCredit, TeacherKl, TokenMean, Unclipped

LN2 = math.log(2)


def _taught(ratios: list[list[float]], reward: list[float], likes: list[list[float]], **fields):
    """By hand: the teacher finds a token `likes` times as probable as the old policy, whose probability is 1/8."""
    old = math.log(1 / 8)
    return by_hand(
        ratios, reward, p_old=1 / 8, teacher_logprob=[[old + math.log(x) for x in row] for row in likes], **fields
    )


TAUGHT = _taught([[1.5, 1, 0.5]], [1], [[2, 1 / 4, 4]])
EXAMPLES = [
    # The teacher finds three tokens 2, 1/4 and 4 times as probable: x = ln 2 · (1, -2, 2).
    # gamma 0, ratios 1.5, 1, 0.5: Σ r x = 1.5 - 2 + 1 = 0.5, and the slope of each is -r x, over three tokens.
    # gamma 1/2: to go 2, -2 + 1 = -1, 1 - 1/2 = 0.5. Bounded to ±0.75 ln 2: 0.5, -0.75, 0.75.
    worked("opd", TAUGHT, -0.5, [[-1.5, 2, -1]], unit=LN2 / 3),
    worked("opd", TAUGHT, None, [[-0.75, 1, -1]], unit=LN2 / 3, gamma=0.5),
    worked("opd", TAUGHT, None, [[-0.75, 0.75, -0.375]], unit=LN2 / 3, gamma=0.5, bound=0.75 * LN2),
    # a tool's token is no reward and costs no discount: x = 1, (9), 1 in units of ln 2 with gamma 1/2: 1.5 and 1
    worked("opd", _taught([[1, 1, 1]], [1], [[2, 512, 2]]).but(mask=np.array([[True, False, True]])), None,
           [[-1.5, 0, -1]], unit=LN2 / 2, gamma=0.5),
    # Rewards 1, 0: A = ±a, a = 1/2 / (sqrt(1/2) + 1e-6). The teacher likes each first token 1.1 times and the second
    # of the right response twice: lam 1/2 with eps 0.2 gives 1/2 + 1.1/2 = 1.05, 1/2 + 1.2/2 = 1.1 (clipped), and of
    # the wrong one 1/2 + (1/1.1)/2 = 21/22.
    worked("rlsd", _taught([[1, 1], [1]], [1, 0], [[1.1, 2], [1.1]]), None, [[-1.05 / 2, -1.1 / 2], [21 / 22]],
           unit=0.5 / (math.sqrt(0.5) + 1e-6) / 2),
    # equal rewards leave the pull: x = ln 2 and 0 with gate 1: σ = 2/3 and 1/2; 2/3 ln 2, slopes -2/3 and -1/2
    worked("sdar", _taught([[1, 1]], [1], [[2, 1]]), 2 / 3 * LN2, [[-2 / 3, -1 / 2]], unit=0.3 / 2, coef=0.3, gate=1.0),
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.args[0])
def test_by_hand(example) -> None:
    example()


def test_equal_rewards_keep_the_teachers_credit() -> None:
    """Rewards 1, 1 and 1, 0 with x = ln 2: A = ln 2, and with 1, 0 the rewards add ±1/2."""
    for reward, added in (([1, 1], 0.0), ([1, 0], 0.5)):
        got = outcome("opd", _taught([[1], [1]], reward, [[2], [2]]), rewards=True)
        np.testing.assert_allclose(got.terms["advantage"], [[LN2 + added], [LN2 - added]], rtol=1e-12)
    grpo = tokenpo.with_teacher(tokenpo.method("grpo"), 0.5)
    flat = run(grpo, _taught([[1], [1]], [1, 1], [[2], [4]]))
    np.testing.assert_allclose(flat.terms["advantage"], [[0.5 * LN2], [LN2]], rtol=1e-12)


FORMS = ("credit", "penalty", "divergence")


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("credit", "gdpo"),
        ("credit", "vapo"),  # credit of several rewards, or from a critic, inside the teacher's
        *((form, name) for form in ("penalty", "divergence") for name in ("gspo", "tepo")),  # beside none, or another
    ],
)
def test_a_method_with_a_teacher_obeys_the_laws(form: str, name: str) -> None:
    tokenpo.check_method(tokenpo.with_teacher(tokenpo.method(name), 0.5, form=form))


def test_teacher_kl_by_hand() -> None:
    """Ratios 2 and 1/2 of 1/8, the teacher at 1/8: x = ∓ln 2. Value k1 is ±ln 2, sum 0; slope -x of k2 is ±ln 2.

    k3 has the slope 1 - e^x = 1/2 and -1 in its place.
    """
    sample = _taught([[2, 0.5]], [1], [[1, 1]])
    for estimator, value, slopes in (
        (TeacherKl(1.0).estimator, 0.0, [LN2, -LN2]),
        (K3(), (0.5 - 1 + 2 - 1) / 2, [0.5, -1]),
    ):
        objective = tokenpo.Objective(
            TeacherCredit(), Unclipped(), TokenMean(), penalties=(TeacherKl(1.0, estimator),)
        )  # teacher and old policy agree: no credit
        got = run(objective, sample)
        np.testing.assert_allclose(got.value, value, atol=1e-15)
        np.testing.assert_allclose(got.gradient, [np.array(slopes) / 2], rtol=1e-12)


def test_gkd_by_hand() -> None:
    """D = 0.5, 0.1 and 0.3 with coef 2: a mean of 0.6, slopes of 2/3 at each D and none at the log-probabilities.

    Rewards 1, 0 add the advantages 1/2, 1/2 and -1/2 at ratios 1, 1, 1.
    """
    sample = by_hand([[1, 1], [1]], [1, 0], teacher_divergence=[[0.5, 0.1], [0.3]])
    moves("gkd", sample, 0.6, [[0, 0], [0]], coef=2.0)
    moves("gkd", sample, 0.3 - 0.5 / 3, [[-0.5 / 3, -0.5 / 3], [0.5 / 3]], rewards=True)
    step = assemble(tokenpo.method("gkd", coef=2.0), tensors(sample))
    leaf = step.batch.policy.need("teacher_divergence").clone().requires_grad_()
    batch = dataclasses.replace(step.batch, policy=dataclasses.replace(step.batch.policy, teacher_divergence=leaf))
    tokenpo.method("gkd", coef=2.0).loss(batch, step.totals).value.backward()
    np.testing.assert_allclose(leaf.grad, [[2 / 3, 2 / 3], [2 / 3, 0]], rtol=1e-12)


def test_sdpo_by_hand() -> None:
    """Ratios 4, 1 of 1/8 and the teacher at 1/4: lp - log q = ln 2 and -ln 2, weighed 2 (the cap) and 1.

    The right response has no other right one: only the wrong one learns. Two responses, two tokens.
    """
    sample = _taught([[1], [4, 1]], [1, 0], [[2], [2, 2]])
    moves("sdpo", sample, 2 - 1, [[0], [2, -1]], unit=LN2 / 4)
    both = sample.but(reward=np.array([1.0, 1.0]))
    assert outcome("sdpo", both).gradient[0, 0] == pytest.approx(-LN2 / 2, rel=1e-12)


def test_what_cannot_learn_is_refused() -> None:
    """k1 differentiated has no expected gradient."""
    for estimator in (K1(), StraightThrough(K3(), K1())):
        with pytest.raises(TokenPOError, match=r"gradient of .* is 0 in expectation.*StraightThrough"):
            TeacherKl(0.1, estimator)
    for options in ({"gamma": 0.5, "form": "penalty"}, {"beta": 0.5}, {"beta": 0.0, "form": "penalty"}):
        with pytest.raises(TokenPOError, match=r"gamma belongs to the credit and beta to the divergence"):
            tokenpo.with_teacher(tokenpo.method("grpo"), 0.1, **options)
    with pytest.raises(TokenPOError, match="form='penalti'"):
        tokenpo.with_teacher(tokenpo.method("grpo"), 0.1, form="penalti")


def test_iw_opd_by_hand() -> None:
    """Log-ratios ln 2, -2 ln 2, ln 2: a quarter, then three, of their size lie before: w = 1.5, 1.375, 1.125."""
    moves("iw_opd", _taught([[1, 1, 1]], [0], [[2, 1 / 4, 2]]), None, [[-1.5, 2 * 1.375, -1.125]], unit=LN2 / 3)

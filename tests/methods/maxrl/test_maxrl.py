"""MaxRL by hand, and what is special about it."""

import dataclasses
import itertools

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, moves, outcome, ragged, run
from tokenpo.core.parts import SoftOverlong
from tokenpo.methods.maxrl import OverMean


def _advantage(reward: list[float], **options) -> list[float]:
    """Of one group of one-token rollouts with these rewards."""
    sample = by_hand([[1.0]] * len(reward), reward, [0] * len(reward))
    return outcome("maxrl", sample, **options).terms["advantage"][:, 0].tolist()


def test_by_hand() -> None:
    """One of four right: A = 0.75 / (0.25 + 1e-6) = 3 and -0.25 / (0.25 + 1e-6) = -1, with b = 1 / (1 + 4e-6).

    1.1 stays, 1.5 is clipped at 1.2; of the wrong ones 0.5 is clipped at 0.8, 2 stays, 4 meets the dual clip at 3. Five
    tokens: J = (3 (1.1 + 1.2) - 0.8 - 2 - 3) b / 5.
    """
    b = 1 / (1 + 4e-6)
    moves(
        "maxrl",
        by_hand([[1.1, 1.5], [0.5], [2.0], [4.0]], [1, 0, 0, 0]),
        -1.1,
        [[-3.3, 0], [0, 0], [2, 0], [0, 0]],
        unit=b / 5,
    )


@pytest.mark.parametrize(
    ("options", "mixed", "wrong", "right"),
    [
        ({}, [3, -1, -1, -1], 0, 0),
        ({"baseline": "kept"}, [3, -1, -1, -1], -1, 0),
        ({"baseline": "none"}, [4, 0, 0, 0], 0, 1),
        ({"order": 1}, [1, 0, 0, 0], 0, 1),
        ({"order": 2}, [1, -2 / 3, -2 / 3, -2 / 3], -1, 1),  # f = 3: C(2, 1) / C(3, 1); f = 4: 1
        ({"order": 4}, [1, -1, -1, -1], -3, 1),  # f = 3: 2/3 + C(2, 2) / C(3, 2); f = 4: three times 1
    ],
)
def test_every_advantage_by_hand(options: dict, mixed: list[float], wrong: float, right: float) -> None:
    """One of four right, none, all; and of a group of one, 0. The 1e-6 below the mean is all that the numbers miss."""
    assert _advantage([1, 0, 0, 0], **options) == pytest.approx(mixed, rel=1e-5)
    assert _advantage([0] * 4, **options) == pytest.approx([wrong] * 4, abs=2e-6)
    assert _advantage([1] * 4, **options) == pytest.approx([right] * 4, abs=2e-6)
    assert _advantage([1], **options) == _advantage([0], **options) == [0]


@pytest.mark.parametrize(
    ("options", "terms"),
    [({}, 3), ({"baseline": "kept"}, 4), ({"baseline": "none"}, 4), *(({"order": t}, t) for t in (1, 2, 3, 4))],
)
@pytest.mark.parametrize("p", [0.1, 0.6])
def test_in_expectation_it_climbs_the_truncated_logarithm(options: dict, terms: int, p: float) -> None:
    """A right answer of probability p: its score is 1/p, that of a wrong one -1/(1 - p). Over all outcomes of four
    rollouts, E (1/4) Σ A_i score_i = d/dp -Σ_{k ≤ T} (1 - p)^k / k = Σ_{k ≤ T} (1 - p)^(k-1), with T as documented.
    """
    outcomes = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    sample = by_hand([[1.0]] * 64, list(outcomes.ravel()), list(np.repeat(np.arange(16), 4)))
    objective = tokenpo.method("maxrl", **options)
    if isinstance(objective.credit, OverMean):
        objective = dataclasses.replace(objective, credit=dataclasses.replace(objective.credit, eps=1e-13))
    advantage = run(objective, sample).terms["advantage"].reshape(16, 4)
    score = np.where(outcomes == 1, 1 / p, -1 / (1 - p))
    probability = np.where(outcomes == 1, p, 1 - p).prod(1)
    seen = (probability * (advantage * score).mean(1)).sum()
    assert seen == pytest.approx(sum((1 - p) ** k for k in range(terms)), rel=1e-11)


@pytest.mark.parametrize("right", range(7))
def test_the_whole_series_has_a_closed_form(right: int) -> None:
    """Σ_{k=0}^{f-1} C(f-1, k) / C(G-1, k) = G / (G - f + 1), so that a wrong answer gets 1 - G / (K + 1); G = 6."""
    advantage = _advantage([1] * right + [0] * (6 - right), order=6)
    assert advantage == pytest.approx([1] * right + [1 - 6 / (right + 1)] * (6 - right), rel=1e-13)


def test_at_even_odds_it_is_grpo_with_the_population_deviation() -> None:
    """Of 1, 1, 0, 0 it is 1/2; with ddof 1 it is sqrt(1/3)."""
    sample = by_hand([[1.1, 0.9], [1.0], [1.3], [0.7]], [1, 1, 0, 0])
    ours, dapo = outcome("maxrl", sample), outcome("dapo", sample, high=0.2, dual=3.0)
    scale = (np.sqrt(1 / 3) + 1e-6) / (0.5 + 1e-6)
    np.testing.assert_allclose(ours.gradient, scale * dapo.gradient, rtol=1e-12)


def test_of_order_one_it_is_raft_pp() -> None:
    """In groups of more than one."""
    sample = ragged(0)
    sample = sample.but(reward=np.where(sample.group == 11, 0, sample.reward))
    close(outcome("maxrl", sample, order=1), outcome("raft_pp", sample), rtol=1e-12)


@pytest.mark.parametrize("options", [{"baseline": "none"}, {"order": 3}])
def test_shaping_is_part_of_the_reward(options: dict) -> None:
    """Two tokens more than 1, over a cache of 2: -1 on the right answer of three tokens. 0 and 1 are left."""
    objective = dataclasses.replace(tokenpo.method("maxrl", **options), shaping=(SoftOverlong(3, 2),))
    got = run(objective, by_hand([[1, 1, 1], [1]], [1, 1]))
    expected = outcome("maxrl", by_hand([[1, 1, 1], [1]], [0, 1]), **options)
    np.testing.assert_array_equal(got.terms["advantage"], expected.terms["advantage"])
    assert got.terms["advantage"][1, 0] >= 1


def test_the_stage_has_the_methods_defaults() -> None:
    assert tokenpo.method("maxrl").credit == OverMean()


def test_negative_rewards_are_refused_where_they_count() -> None:
    sample = by_hand([[1.0], [1.0]], [1, -0.5])
    for options in ({}, {"order": 2}):
        with pytest.raises(tokenpo.TokenPOError, match=r"^maxrl needs rewards >= 0, .*, got -0\.5: give rewards of"):
            outcome("maxrl", sample, **options)
    silent = sample.but(mask=np.array([[True], [False]]))
    assert outcome("maxrl", silent).value == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, r"maxrl: order is 0, expected a whole number >= 1"),
        ({"order": 1.5}, r"method maxrl: option order = 1\.5 must be a whole number"),
        ({"order": 2, "baseline": "none"}, r"maxrl: order = 2 takes the place of the baseline: leave out baseline = "),
        ({"baseline": "keep"}, r"maxrl: baseline='keep' is no choice; did you mean 'kept'\?"),
    ],
)
def test_wrong_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(tokenpo.TokenPOError, match=f"^{message}"):
        tokenpo.method("maxrl", **options)

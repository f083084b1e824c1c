"""TOPR by hand, and what is special about it."""

import dataclasses

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, moves, outcome, ragged, run
from tokenpo.core.parts import SoftOverlong


@pytest.mark.parametrize(("level", "weights"), [("sequence", (0.5, 0.5)), ("token", (1.0, 0.25))])
def test_by_hand(level: str, weights: tuple[float, float]) -> None:
    """Rewards 1, 0, 0: A = 1, -1, -1; p_old = 1/4, lp = log(r / 4). A right answer counts 1 at any ratio. The wrong one
    at 2 and 1/4 has W = 1/2, by tokens 2, cut to 1, and 1/4. The other, at 3, counts 1. Three responses.
    """
    one, two = weights
    log = np.log
    value = log(5 / 4) + log(0.1 / 4) - one * log(2 / 4) - two * log(0.25 / 4) - log(3 / 4)
    moves(
        "topr",
        by_hand([[5, 0.1], [2, 0.25], [3]], [1, 0, 0]),
        -value,
        [[-1, -1], [one, two], [1, 0]],
        unit=1 / 3,
        level=level,
    )


def test_the_advantage_is_over_the_mean() -> None:
    """Rewards 3, 1, 2: A = 1, -1, 0; the wrong one's ratio 1/2 tapers it, and 0 counts as right."""
    got = moves("topr", by_hand([[9], [0.5], [1]], [3, 1, 2]), None, [[-1], [0.5], [0]], unit=1 / 3, signal="advantage")
    assert got.terms["low"].tolist() == [[1], [0], [1]]
    assert (got.terms["high"] == 1).all()


def test_the_weight_of_a_response_is_bounded_below() -> None:
    """e^-15 twice: the log of W is held at -20."""
    moves("topr", by_hand([[np.exp(-15.0)] * 2], [0]), None, [[np.exp(-20.0)] * 2])


def test_on_policy_it_is_reinforce_on_whole_responses() -> None:
    """±1 per token over the responses, or Dr. GRPO's advantage undivided."""
    sample = ragged(0).on_policy()
    sign = np.where(sample.reward > 0.5, 1, -1)[:, None]
    responses = sample.mask.any(1).sum()
    np.testing.assert_allclose(outcome("topr", sample).gradient, -sign * sample.mask / responses, rtol=1e-12)
    ours = outcome("topr", sample, signal="advantage")
    dr_grpo = outcome("dr_grpo", sample, length=1.0)
    np.testing.assert_allclose(ours.gradient, dr_grpo.gradient, rtol=1e-12, atol=1e-17)


def test_right_answers_alone_are_raft_with_another_denominator() -> None:
    sample = ragged(0)
    sample = sample.but(reward=np.ones(len(sample.reward)))
    ours, raft = outcome("topr", sample), outcome("raft", sample)
    tokens, responses = sample.mask.sum(), sample.mask.any(1).sum()
    assert ours.value == pytest.approx(raft.value * tokens / responses, rel=1e-12)
    np.testing.assert_allclose(ours.gradient, raft.gradient * tokens / responses, rtol=1e-12)


def test_shaping_is_added_to_the_outcome() -> None:
    """Two tokens more than 1, over a cache of 2: -1 on the right answer of three tokens, A = 1 - 1 = 0."""
    objective = dataclasses.replace(tokenpo.method("topr"), shaping=(SoftOverlong(3, 2),))
    got = run(objective, by_hand([[1, 1, 1], [1]], [1, 0]))
    assert got.terms["advantage"].tolist() == [[0, 0, 0], [-1, 0, 0]]

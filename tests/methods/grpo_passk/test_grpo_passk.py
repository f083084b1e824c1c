"""GRPO on pass@k by hand, and what is special about it."""

import dataclasses

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, moves, outcome, ragged, run
from tokenpo.core.parts import SoftOverlong
from tokenpo.methods.grpo_passk import BestMargin


@pytest.mark.parametrize(("options", "a"), [({}, 1 / (0.5 + 1e-6)), ({"std": False}, 1.0)])
def test_by_hand(options: dict, a: float) -> None:
    """One of four right: the mean is 1/4, the variance (9 + 1 + 1 + 1) / 16 / 3 = 1/4, A = 1 / (1/2 + 1e-6) = 2.

    1.1 stays, 1.5 is clipped at 1.2; the wrong ones do not move. Five tokens: J = (1.1 + 1.2) a / 5.
    """
    sample = by_hand([[1.1, 1.5], [0.5], [2.0], [1.0]], [1, 0, 0, 0])
    moves("grpo_passk", sample, -2.3 * a / 5, [[-1.1 * a / 5, 0], [0, 0], [0, 0], [0, 0]], **options)


def test_the_lead_is_over_the_second_best() -> None:
    """Rewards 3, 1, 0: mean 4/3, variance (25 + 1 + 16) / 9 / 2 = 7/3; A = (3 - 1) / (sqrt(7/3) + 1e-6)."""
    got = outcome("grpo_passk", by_hand([[1.0], [1.0], [1.0]], [1, 3, 0]))
    expected = [[0], [2 / (np.sqrt(7 / 3) + 1e-6)], [0]]
    np.testing.assert_allclose(got.terms["advantage"], expected, rtol=1e-12)


@pytest.mark.parametrize(("reward", "group"), [([1, 1, 0], [0, 0, 0]), ([1, 2, 3], [0, 1, 2]), ([0.1] * 3, [0] * 3)])
def test_a_tie_a_group_of_one_and_equal_rewards_teach_nothing(reward: list[float], group: list[int]) -> None:
    bare = dataclasses.replace(tokenpo.method("grpo_passk"), credit=BestMargin(eps=0.0))
    assert not run(bare, by_hand([[1.0]] * 3, reward, group)).gradient.any()


def test_the_advantage_is_what_the_best_of_the_group_owes_to_a_response() -> None:
    """A_i = max_j R_j - max_{j ≠ i} R_j, counted here, in groups of at least two."""
    sample = ragged(3, binary=False)
    got = outcome("grpo_passk", sample, std=False).terms["advantage"][:, 0]
    alive = sample.mask.any(1)
    for i in np.flatnonzero(alive):
        group = alive & (sample.group == sample.group[i])
        others = np.delete(sample.reward, i)[np.delete(group, i)]
        owed = sample.reward[group].max() - others.max() if others.size else 0
        assert got[i] == pytest.approx(owed, abs=1e-15)


def test_of_two_it_is_the_positive_half_of_rloo() -> None:
    rng = np.random.default_rng(0)
    sample = by_hand([[r] for r in rng.uniform(0.9, 1.1, 10)], list(rng.normal(size=10)), [0, 1, 2, 3, 4] * 2)
    ours, rloo = outcome("grpo_passk", sample, std=False), outcome("rloo", sample)
    np.testing.assert_allclose(ours.gradient, np.minimum(rloo.gradient, 0), rtol=1e-12)
    assert np.count_nonzero(ours.gradient) == 5


def test_shaping_is_part_of_the_reward() -> None:
    """Two tokens more than 1, over a cache of 2: -1 on the right answer of three tokens. 0 and 1/2 are left."""
    objective = dataclasses.replace(tokenpo.method("grpo_passk", std=False), shaping=(SoftOverlong(3, 2),))
    got = run(objective, by_hand([[1, 1, 1], [1]], [1, 0.5]))
    assert got.terms["advantage"].tolist() == [[0, 0, 0], [0.5, 0, 0]]


def test_the_stage_has_the_methods_defaults() -> None:
    assert tokenpo.method("grpo_passk").credit == BestMargin()

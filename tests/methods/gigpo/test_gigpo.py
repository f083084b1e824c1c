"""GiGPO by hand, and what is special about it."""

import dataclasses

import numpy as np

import tokenpo
from oracle_support import by_hand, outcome, ragged, run
from tokenpo.core.parts import RewardToGo

# Two rollouts of two turns and one of one turn; the first turns begin in state 0, the second ones in 5 and 6.
THREE = by_hand([[1, 1, 1], [1, 1], [1]], [1, 0, 0], token_reward=[[0, 0.5, 0.5], [1, 0], [0]]).but(
    turn=np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0]]), anchor=np.array([[0, 0, 5], [0, 6, 0], [0, 0, 0]])
)


def test_by_hand() -> None:
    """Rewards 1, 0, 0 with 2, 2 and 1 turns: mean 2/5. Returns 1, 1/2 | 1, 0 | 0: in state 0 they are 1, 1, 0, mean
    2/3; states 5 and 6 have one turn each, 0. A = 3/5 + 1/3, 3/5 | -2/5 + 1/3, -2/5 | -2/5 - 2/3.
    """
    advantage = outcome("gigpo", THREE).terms["advantage"][THREE.mask]
    np.testing.assert_allclose(advantage, [14 / 15, 14 / 15, 3 / 5, -1 / 15, -2 / 5, -16 / 15], rtol=1e-12)


def test_reward_to_go_compares_turns_with_the_same_number() -> None:
    """Returns 1, 1/2 | 1, 0 | 0: first turns, mean 2/3; second ones, mean 1/4. With gamma 1/2 the first is 3/4: 3/4, 1
    and 0, mean 7/12."""
    grpo = tokenpo.method("grpo")
    plain = run(dataclasses.replace(grpo, credit=RewardToGo()), THREE).terms["advantage"][THREE.mask]
    np.testing.assert_allclose(plain, [1 / 3, 1 / 3, 1 / 4, 1 / 3, -1 / 4, -2 / 3], rtol=1e-12)
    half = run(dataclasses.replace(grpo, credit=RewardToGo(gamma=0.5)), THREE).terms["advantage"][THREE.mask]
    np.testing.assert_allclose(half, [1 / 6, 1 / 6, 1 / 4, 5 / 12, -1 / 4, -7 / 12], rtol=1e-12)
    tokenpo.check_method(dataclasses.replace(grpo, credit=RewardToGo(gamma=0.5, std=True)))


def test_without_the_step_and_with_a_single_turn_it_is_dr_grpos_advantage() -> None:
    sample = ragged(0, binary=False).but(turn=np.zeros_like(ragged(0).turn))
    ours, other = (outcome(n, sample, **o) for n, o in (("gigpo", {"omega": 0.0}), ("dr_grpo", {})))
    np.testing.assert_allclose(ours.terms["advantage"], other.terms["advantage"], rtol=1e-12)


def test_numbers_of_turns_and_states_are_names() -> None:
    """Turns 0, 1 may be called 3, 8, and states anything, as long as they stay apart."""
    renamed = THREE.but(turn=THREE.turn * 5 + 3, anchor=THREE.anchor * 7 + 2)
    ours = [outcome("gigpo", s).terms["advantage"][s.mask] for s in (THREE, renamed)]
    np.testing.assert_array_equal(*ours)

"""Methods whose advantage differs along a response, or between several rewards, by hand. Methods with a critic."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import (
    Sample,
    agrees,
    assemble,
    batches,
    by_hand,
    close,
    moves,
    outcome,
    ragged,
    run,
    tensors,
    worked,
)
from oracles import token_credit as oracle
from tokenpo.core.parts import Critic, RewardToGo, SoftOverlong
from tokenpo.core.parts.credit import BehindToken, Continuations, EveryTokens, Improbable
from tokenpo.methods.shared_tokens import fisher


def _advantages(name: str, sample: Sample, **options) -> np.ndarray:
    """Of the response tokens, row by row."""
    return outcome(name, sample, **options).terms["advantage"][sample.mask]


ONE = 0.5 / (np.sqrt(1 / 3) + 1e-6)
FORMS = ("trl", "verl", "nemo_rl")
BRANCHES = by_hand([[1.0, 1.0]] * 3, [1, 0, 0], token_ids=[[1, 2], [1, 3], [4, 5]])
OLD = np.log([[0.25, 0.95], [0.25, 0.95]])
EXAMPLES = [
    # Responses a b, a c, d e with rewards 1, 0, 0. At the root: A(a) = 1/2 - 0, A(d) = 0 - 1/2. Behind a: A(b) = 1,
    # A(c) = -1. Behind d nothing but e: 0. Six tokens; four branching pairs, (root, a) shared by two: an eighth each.
    worked("t_spmo", BRANCHES, None, [[0.5, 1], [0.5, -1], [-0.5, 0]], unit=-1 / 6, count="rollouts"),
    worked("t_spmo", BRANCHES, None, [[0.25, 1], [0.25, -1], [-0.5, 0]], unit=-1 / 4, count="pairs"),
    # a gap in the mask is no end: a tool's token at place 0 of both, then the responses part
    worked("t_spmo", by_hand([[1.0, 1.0]] * 2, [1, 0], token_ids=[[7, 1], [7, 2]]).but(mask=np.array([[0, 1]] * 2) > 0),
           None, [[0, -0.5], [0, 0.5]]),
    # Right: b a, b; wrong: a, c. Fisher's p of [[1, 1], [1, 1]], the likeliest of its tables, is 1: F = 0, and IG = 0:
    # k_a = 0. For b [[2, 0], [0, 2]]: k_b = 1, as f₋ = 0 makes x = 1e5; c by [[0, 1], [2, 1]]: -1.
    worked("ktae", by_hand([[1, 1], [1], [1], [1]], [1, 1, 0, 0], token_ids=[[5, 4], [5], [4], [6]]), None,
           [[-ONE - 1, -ONE], [-ONE - 1], [ONE], [ONE + 1]], unit=1 / 5),
    # c ends the text
    worked("ktae", by_hand([[1, 1], [1], [1], [1]], [1, 1, 0, 0], token_ids=[[5, 4], [5], [4], [6]]), None,
           [[-ONE - 1, -ONE], [-ONE - 1], [ONE], [ONE]], unit=1 / 5, end=6),
    # Right a b c d, wrong a x c d: a from the start, c d from the end; A = ±1/2. Entropies 0: the right moves by
    # 2, 1, 2, 2 over 3 conflict tokens, the wrong by its x alone; 4 tokens, 2 responses.
    worked("gtpo_conflict", by_hand([[1] * 4] * 2, [1, 0], token_ids=[[1, 2, 3, 4], [1, 9, 3, 4]]), None,
           [[-2, -1, -2, -2], [0, 1, 0, 0]], unit=0.5 / 3 / 4 / 2),
    # both runs: the square. A break within the run: b counts from the end alone. Mean entropy 0.5 costs 0.05; 0.8 drops
    worked("gtpo_conflict", by_hand([[1], [1], [1]], [1, 0, 1], token_ids=[[1], [1], [1]],
                                    old_entropy=[[0.5], [0.0], [0.8]]), None,
           [[-4 * (1 / 3 - 0.05)], [0], [0]], unit=1 / 3),
    # Old probabilities 0.25 and 0.95: the second token of each row is left out. Of the gains 0.6 and -0.2 of the
    # others the mean is 0.2, the variance 0.32: A = ±a, a = 0.4 / sqrt(0.32 + 1e-8). J is the mean over these two.
    worked("spo", by_hand([[1, 1]] * 2, [1, 0], gain=[[0.6, 5.0], [-0.2, 5.0]]).but(
               old_logprob=OLD, logprob=OLD + np.log([[1.1, 1.0], [0.9, 1.0]])),
           -(1.1 - 0.9), [[-1.1, 0], [0.9, 0]], unit=0.4 / np.sqrt(0.32 + 1e-8) / 2),
    # Hbar = 3, 1 | 1, 1/3. Shares of the right: 3/4, 1/4 of n = 2; of the wrong, by 1/Hbar = 1, 3: 1/4, 3/4. Mean 0:
    # r^ = 1.15, 1.05, -1.05, -1.15; std = sqrt(2 (1.15² + 1.05²) / 3). Row 0: w = (1 + 1.2) / 2 = 1.1 inside;
    # row 3: w = (0.5 + 0.7) / 2 = 0.6 clipped to 0.8. Each token moves by A r_it / |o_i| / 4.
    worked("grpo_s", by_hand([[1, 1.2], [2.0], [1], [0.5, 0.7]], [1, 1, 0, 0],
                             old_entropy=[[1.5, 4.5], [1.0], [1.0], [1 / 3, 1 / 3]]),
           -(1.1 * 1.15 + 1.28 * 1.05 - 1.05 - 0.8 * 1.15), [[-1.15 / 2, -1.2 * 1.15 / 2], [0], [1.05], [0]],
           unit=1 / (np.sqrt(2 * (1.15**2 + 1.05**2) / 3) + 1e-6) / 4),
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.args[0])
def test_by_hand(example) -> None:
    example()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"weights": (1.0, 0.5, -2.0)}])
def test_gdpo_with_missing_rewards_is_its_oracle(form: str, options: dict) -> None:
    """A reward that does not apply to every rollout, and a rollout that none applies to."""
    sample = ragged(0)
    rewards = sample.rewards.copy()
    rewards[::5, 1], rewards[3] = np.nan, np.nan
    agrees("gdpo", sample.but(rewards=rewards), form=form, **options)


def test_gdpo() -> None:
    """One group of lengths 1, 1, 2, rewards (1, 0), (0, 0), (0, 2). First reward: mean 1/3, deviations 2/3, -1/3, -1/3,
    std sqrt(6/9 / 2) = 1/sqrt(3). Second: twice as much the other way round, so the same numbers: u = sqrt(3) (1/3,
    -2/3, 1/3) but for eps. Over the responses: mean 0, std sqrt(3) sqrt(6/9 / 2) = 1; over the four tokens below.
    """
    sample = by_hand([[1], [1], [1, 1]], [1, 0, 2]).but(rewards=np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]]))
    got = {form: outcome("gdpo", sample, form=form).terms["advantage"][:, 0] for form in FORMS}
    root = np.sqrt(3)
    np.testing.assert_allclose(got["trl"], root * np.array([1, -2, 1]) / 3, rtol=1e-3)
    u = root * np.array([1, -2, 1, 1]) / 3  # a token each
    np.testing.assert_allclose(got["verl"], ((u - u.mean()) / u.std(ddof=1))[:3], rtol=1e-5)
    # With s = 1/sqrt(2). Others of (1, 0, 0): (0, 0), mean 0, std 0, not divided: 1; (1, 0): mean 1/2, std s: -s, -s.
    # Second reward: 0 against (0, 2): mean 1, std sqrt(2): -s; -s; 2 against (0, 0): 2. u = 1 - s, -2 s, 2 - s: mean
    # 1 - 4/3 s, so deviations s/3, -1 - 2/3 s, 1 + s/3, whose squares add up to 1/3 + 2 + 2 s.
    s = np.sqrt(0.5)
    u = np.array([s / 3, -1 - 2 * s / 3, 1 + s / 3])
    np.testing.assert_allclose(got["nemo_rl"], u / np.sqrt((7 / 3 + 2 * s) / 2), rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_gdpo_without_any_reward_learns_nothing(form: str) -> None:
    sample = by_hand([[1.0, 1.0]] * 2, [0, 0]).but(rewards=np.full((2, 2), np.nan))
    assert not outcome("gdpo", sample, form=form).gradient.any()


def test_gdpo_divides_by_a_deviation_of_the_batch_below_1() -> None:
    """Rewards 1, 0 and an equal pair: u = ±v, 0, 0, of variance 2 v² / 3. v = 1/2 over sqrt(1/2) and what is added to
    it; among others alone it is 1, undivided."""
    half = 0.5**0.5
    for form, v, added in (("trl", 0.5 / (half + 1e-4), 1e-4), ("verl", 0.5 / (half + 1e-6), 0), ("nemo_rl", 1, 0)):
        std = np.sqrt(2 * v**2 / 3 + (1e-8 if form == "verl" else 0)) + added
        seen = _advantages("gdpo", by_hand([[1.0]] * 4, [1, 0, 1, 1], [0, 0, 1, 1]), form=form)
        np.testing.assert_allclose(seen, np.array([v, -v, 0, 0]) / std, rtol=1e-12, atol=1e-15)


def test_gdpo_over_tokens_moves_equal_rewards_by_the_mean_of_the_batch() -> None:
    """Group 0: rewards 1, 0 of lengths 1, 3; group 1: equal. Over responses u has mean 0, over tokens it has not."""
    sample = by_hand([[1], [1, 1, 1], [1], [1]], [1, 0, 1, 1], [0, 0, 1, 1])
    over_responses, over_tokens = (outcome("gdpo", sample, form=f).terms["advantage"] for f in ("trl", "verl"))
    assert not over_responses[2:].any() and (over_tokens[2:, 0] > 0.1).all()


def test_numbers_of_rewards_are_held_to_the_options() -> None:
    with pytest.raises(tokenpo.TokenPOError, match=r"^gdpo: 2 weights for the 3 columns of Rollouts.rewards: give one"):
        outcome("gdpo", ragged(0), weights=(1.0, 2.0))
    with pytest.raises(tokenpo.TokenPOError, match="gdpo: weights is 2, expected a list of finite numbers"):
        tokenpo.method("gdpo", weights=2)
    with pytest.raises(tokenpo.TokenPOError, match=r"^mt_grpo: the last 4 rewards judge the outcome, .* has 3 columns"):
        outcome("mt_grpo", ragged(0), outcome_rewards=4)


# Two rollouts of two turns and one of one turn; the first turns begin in state 0, the second ones in 5 and 6.
TURNS = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0]])
STATES = by_hand([[1, 1, 1], [1, 1], [1]], [1, 0, 0], token_reward=[[0, 0.5, 0.5], [1, 0], [0]]).but(
    turn=TURNS, anchor=np.array([[0, 0, 5], [0, 6, 0], [0, 0, 0]])
)


def test_gigpo() -> None:
    """Rewards 1, 0, 0 with 2, 2 and 1 turns: mean 2/5. Returns 1, 1/2 | 1, 0 | 0: in state 0 they are 1, 1, 0, mean
    2/3; states 5 and 6 have one turn each, 0. A = 3/5 + 1/3, 3/5 | -2/5 + 1/3, -2/5 | -2/5 - 2/3.
    """
    expected = [14 / 15, 14 / 15, 3 / 5, -1 / 15, -2 / 5, -16 / 15]
    np.testing.assert_allclose(_advantages("gigpo", STATES), expected, rtol=1e-12)
    # turns and states are names
    renamed = STATES.but(turn=STATES.turn * 5 + 3, anchor=STATES.anchor * 7 + 2)
    np.testing.assert_array_equal(_advantages("gigpo", renamed), _advantages("gigpo", STATES))


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        (RewardToGo(), [1 / 3, 1 / 3, 1 / 4, 1 / 3, -1 / 4, -2 / 3]),
        (RewardToGo(gamma=0.5), [1 / 6, 1 / 6, 1 / 4, 5 / 12, -1 / 4, -7 / 12]),
    ],
)
def test_reward_to_go_compares_turns_with_the_same_number(credit: RewardToGo, expected: list[float]) -> None:
    """Returns 1, 1/2 | 1, 0 | 0: first turns, mean 2/3; second ones, mean 1/4. With gamma 1/2 the first is 3/4: 3/4, 1
    and 0, mean 7/12."""
    objective = dataclasses.replace(tokenpo.method("grpo"), credit=credit)
    np.testing.assert_allclose(run(objective, STATES).terms["advantage"][STATES.mask], expected, rtol=1e-12)
    tokenpo.check_method(dataclasses.replace(objective, credit=dataclasses.replace(credit, std=True)))


def test_mt_grpo() -> None:
    """Two rollouts that call (turn reward 1 and 0, outcome 0 and 1) and one that answers at once (0, 0).

    Turn rewards 1, 0, 0: mean 1/3, std 1/sqrt(3): 2/sqrt(3), -1/sqrt(3), -1/sqrt(3); outcomes 0, 1, 0 likewise; their
    sums 1, 1, 0: mean 2/3, the last -2/3 sqrt(3) = -2/sqrt(3). First turns: 2 - 1 = 1 and -1 + 2 = 1, over sqrt(3).
    """
    sample = by_hand([[1, 1, 1], [1, 1], [1]], [1, 1, 0])
    sample = sample.but(rewards=np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), turn=TURNS)
    expected = np.array([1, 1, -1, 1, 2, -2]) / np.sqrt(3)
    np.testing.assert_allclose(_advantages("mt_grpo", sample), expected, rtol=3e-4)


def test_mt_grpo_without_a_reward_counts_0_and_of_equal_rewards_exactly_0() -> None:
    """Three times 0.1 is not 0.3."""
    missing, zero = (np.array([[x, 1.0], [0.5, x], [x, x]]) for x in (np.nan, 0.0))
    sample = by_hand([[1, 1]] * 3, [0] * 3).but(turn=np.array([[0, 1]] * 3))
    for norm in ("each", "joint"):
        close(*(outcome("mt_grpo", sample.but(rewards=x), norm=norm) for x in (missing, zero)))
        assert not outcome("mt_grpo", sample.but(rewards=np.full((3, 3), 0.1)), norm=norm).gradient.any()


def test_otb() -> None:
    """p_old = 1/4: w = 1 - 1/2 + Σp² = 1/2 + Σp². Rewards 1, 0, lengths 3, 2, Σp² = 1/4 and 1/2: w = 3/4 and 1, so that
    W = 3/4, 3/2, 9/4 and 1, 2. B = (3/4) / (3/4 + 1) = 3/7 at the first token, (3/2) / (7/2) = 3/7 at the second, and 0
    at the third, where the first response is alone: A = 4/7, 4/7, 1 and -3/7, -3/7.
    """
    sample = by_hand([[1, 1, 1], [1, 1]], [1, 0], old_collision=[[0.25, 0.25, 0.25], [0.5, 0.5]])
    np.testing.assert_allclose(_advantages("otb", sample), np.array([4, 4, 7, -3, -3]) / 7, rtol=1e-7)
    assert abs(_advantages("otb", sample, zero_tail=False)[2]) < 1e-7


def test_otb_counts_rewards_of_tokens_from_there_on() -> None:
    """Rewards 1 then 2 against 0 then 0, W equal: G = 3, 2 against 0, 0: B = 3/2, 1."""
    sample = by_hand([[1, 1], [1, 1]], [3, 0], token_reward=[[1, 2], [0, 0]], old_collision=[[0.5, 0.5]] * 2)
    np.testing.assert_allclose(_advantages("otb", sample, token_reward=True), [1.5, 1, -1.5, -1], rtol=1e-7)


def test_otb_moves_no_baseline_by_a_sure_token() -> None:
    """π = 1 and Σp² = 1: w = 0. The response that decides nothing has no part in the baseline of the other."""
    sample = by_hand([[1], [1]], [1, 0], p_old=1.0, old_collision=[[1.0], [0.5]])
    sample = sample.but(old_logprob=np.array([[0.0], [np.log(0.5)]]))
    np.testing.assert_allclose(_advantages("otb", sample), [1, 0], atol=1e-7)


@pytest.mark.parametrize(
    ("lengths", "reward", "token_ids"),
    [
        ([1, 2], [1, 0], [[1], [1, 2]]),  # a and a b: behind a only b goes on
        ([1, 1, 1, 1], [0.1] * 4, [[1], [1], [1], [2]]),  # equal rewards, whose means round differently
    ],
)
def test_t_spmo_without_an_alternative_or_a_gain(lengths: list[int], reward: list[float], token_ids: list) -> None:
    sample = by_hand([[1.0] * n for n in lengths], reward, token_ids=token_ids)
    assert not outcome("t_spmo", sample).gradient.any()


@pytest.mark.parametrize(("old", "weights"), [([0.25, 0.95], [2, 0]), ([0.95, 0.95], [0, 0]), ([0.5, 0.25], [1, 1])])
def test_spo_weighs_improbable_tokens_by_all_over_their_number(old: list[float], weights: list[float]) -> None:
    sample = by_hand([[1.0, 1.0]], [1], gain=[[0.6, -0.2]]).but(old_logprob=np.log([old]), logprob=np.log([old]))
    got = outcome("spo", sample)
    assert got.terms["weight"].tolist() == [weights] and np.isfinite(got.gradient).all()


def test_vineppo() -> None:
    """Gains 0.5, 0.5, -0.5, -0.5: mean 0, variance 4/4 / 3 = 1/3, A = ±a, a = 1/2 / sqrt(1/3 + 1e-8).
    1.1 a and 1.5 clipped at 1.2 a; -0.9 a and 0.7 clipped at 0.8: -0.8 a."""
    sample = by_hand([[1.1, 1.5], [0.9, 0.7]], [1, 0], gain=[[0.5, 0.5], [-0.5, -0.5]])
    unit = 0.5 / np.sqrt(1 / 3 + 1e-8) / 4
    moves("vineppo", sample, -(1.1 + 1.2 - 0.9 - 0.8), [[-1.1, 0], [0.9, 0]], unit=unit)
    assert not outcome("vineppo", by_hand([[1.0] * 3] * 2, [1, 0], gain=[[0.1] * 3] * 2)).terms["advantage"].any()


def test_what_is_drawn_from_each_cut() -> None:
    def plan(name: str, **options: int) -> tuple:
        return tokenpo.method(name, **options).supplied

    assert plan("vineppo") == (Continuations(EveryTokens(16), 9),)
    assert plan("vineppo", separator=7, continuations=3) == (Continuations(BehindToken(7), 3),)
    assert tokenpo.method("vineppo", separator=7).needs == {"gain", "token_ids"}
    assert plan("spo", interval=2, below=0.5) == (Continuations(Improbable(2, 0.5), 9),)
    assert plan("spo") == (Continuations(Improbable(5, 0.9), 9),)


def _shaped(lengths: list[int], reward: list[float], **options) -> np.ndarray:
    """Rewards [N] of one group with these lengths, after hmpo's shaping."""
    sample = by_hand([[1.0] * n for n in lengths], reward)
    rollouts = tokenpo.Rollouts(
        *(torch.tensor(x) for x in (sample.mask, sample.reward, sample.group, sample.old_logprob))
    )
    (stage,) = tokenpo.method("hmpo", **options).shaping
    return sample.reward + stage(rollouts).numpy()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 0.8, 0, 0]),
        ({"additive": True}, [2, 1.8, 1, 0]),
        ({"shift": 0.1}, [np.sqrt(0.5) + 0.1, 0.1, 0, 0]),
        ({"shift": 0.1, "scale": 0.5, "cap": 0.3}, [0.3, 0.1, 0, 0]),
        ({"shift": -0.2}, [np.sqrt(0.5) - 0.2, 0, 0, 0]),
        ({"threshold": 1.5}, [0, 0, 0, 0]),
        ({"scale": 0.0}, [0.8, 0.8, 0, 0]),
    ],
)
def test_hmpo_shaped_rewards(options: dict, expected: list[float]) -> None:
    """Right answers of 2, 4 and 6 tokens: b = 4. cos(π/4) = sqrt(1/2), cos(π/2) = 0; 6 is beyond. The wrong one: 0."""
    for wrong in (0.0, -1.0):
        got = _shaped([2, 4, 6, 1], [1, 1, 1, wrong], **options)
        np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(
    ("lengths", "reward", "options", "expected"),
    [
        # by score: right answers of 2 and 4 tokens: b = 3. f(2) = min(cos(π/3) + 0.8, 1) = 1, 4 is beyond
        ([2, 4, 1], [0.5, 0.9, -1.0], {"by_score": True}, [0.5, 0, 0]),
        ([2, 4, 1], [0.5, 0.9, -1.0], {"by_score": True, "additive": True}, [1.0, 0.9, 0]),
        # the median of two lies between them, b = 1.5: f(1) = min(cos(π/3) + 0.8, cap), and 2 is beyond
        ([1, 2], [1, 1], {}, [1, 0]),
        ([1, 2], [1, 1], {"cap": 9.0}, [1.3, 0]),
        ([5, 3], [1, 0], {}, [0.8, 0]),  # a single right answer is worth the shift
    ],
)
def test_hmpo_scores_and_medians(lengths: list[int], reward: list[float], options: dict, expected: list[float]) -> None:
    np.testing.assert_allclose(_shaped(lengths, reward, **options), expected, rtol=1e-14)


def test_hmpo() -> None:
    """R' = 1, 0.8, 0, 0 of lengths 2, 4, 6, 1: mean 0.45, Σ of squares 0.55² + 0.35² + 2 · 0.45² = 0.83, std
    sqrt(0.83 / 3). All ratios are 1, but 1.5 (clipped at 1.28) of the first row. 13 tokens: Σ |o_i| A_i = 1.1 + 1.4 -
    2.7 - 0.45 = -0.65, and 0.28 · 0.55 more. π_ref = π: no divergence.
    """
    sample = by_hand([[1.5, 1], [1] * 4, [1] * 6, [1]], [1, 1, 1, 0])
    gradient, unit = [[0, -0.55], [-0.35] * 4, [0.45] * 6, [0.45]], 1 / (np.sqrt(0.83 / 3) + 1e-6) / 13
    moves("hmpo", sample.but(ref_logprob=sample.logprob), 0.65 - 0.28 * 0.55, gradient, unit=unit)


# Two right rollouts, two wrong ones. Position 0: H = 3, 1 right (shares 3/4, 1/4 of d = 2), 1/H = 1, 3 wrong (shares
# 1/4, 3/4 of h = 2); position 1: one alive on each side (share 1 of 1). Shaped rewards with a1 = 1, a2 = 0.1:
#   r~+ = 1.15, 1.10 | 1.05        r~- = -1.05 | -1.15, -1.10
# Law: at position 0 they sum to 2.2 = (a1 + a2) d_t, at position 1 to 1.1.
ENTROPY = [[3.0, 5.0], [1.0], [1.0], [1 / 3, 4.0]]
ZEROS = np.sqrt((1.15**2 + 1.1**2 + 1.05**2 - 6 * 0.55**2) / 5) + 1e-6  # 3.3 / 6 = 0.55 is their mean with three zeros
OWN = 0.05 + 1e-6  # 1.15, 1.10, 1.05: mean 1.1, std 0.05
POOLED = np.sqrt(2 * (1.15**2 + 1.1**2 + 1.05**2) / 5) + 1e-6  # the two sides mirror each other: mean 0
CLAMPED = 1.1 * np.sqrt(6 / 5) + 1e-6  # every token ±1.1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"normalise": "with_zeros"}, np.array([[0.6, 0.55], [0.5, 0], [-0.5, 0], [-0.6, -0.55]]) / ZEROS),
        ({"normalise": "own_set"}, np.array([[0.05, 0], [-0.05, 0], [0.05, 0], [-0.05, 0]]) / OWN),
        ({"normalise": "pooled"}, np.array([[1.15, 1.1], [1.05, 0], [-1.05, 0], [-1.15, -1.1]]) / POOLED),
        # clamped to (0.2, 0.28) every H is 0.28: every share is 1 / d
        (
            {"normalise": "pooled", "entropy_clamp": (0.2, 0.28)},
            np.array([[1.1, 1.1], [1.1, 0], [-1.1, 0], [-1.1, -1.1]]) / CLAMPED,
        ),
    ],
)
def test_gtpo(options: dict, expected: np.ndarray) -> None:
    """At ratio 1 the gradient is -A / 6, and J the mean of A; the ratio 1.5 at (0, 0) is clipped to 1.28."""
    still, moved = (
        outcome("gtpo", by_hand([[first, 1], [1], [1], [1, 1]], [1, 1, 0, 0], old_entropy=ENTROPY), **options)
        for first in (1.0, 1.5)
    )
    np.testing.assert_allclose(-6 * still.gradient, expected, rtol=1e-9, atol=1e-12)
    assert moved.value == pytest.approx(-(expected.sum() + 0.28 * expected[0, 0]) / 6, rel=1e-9)
    assert moved.gradient[0, 0] == 0


def _with_hole() -> Sample:
    """Reward 1, V = 0.5, 0.2, (a tool's token), 0.4."""
    sample = by_hand([[1, 1, 1, 1]], [1], value=[[0.5, 0.2, 9.0, 0.4]])
    return sample.but(mask=np.array([[True, True, False, True]]), value=sample.value * [[1, 1, 0, 1]])


def test_gae_by_hand() -> None:
    """gamma 1/2, lam 1/2. Backwards: δ = 1 - 0.4 = 0.6, A = 0.6. The tool's token is skipped: δ = 0.4/2 - 0.2 = 0 and
    A = 0 + 0.6/4 = 0.15. δ = 0.2/2 - 0.5 = -0.4 and A = -0.4 + 0.15/4 = -0.3625."""
    got = _advantages("ppo", _with_hole(), lam=0.5, gamma=0.5, whiten=False)
    np.testing.assert_allclose(got, [-0.3625, 0.15, 0.6], rtol=1e-12)


def test_rewards_of_tokens_and_of_the_reference_arrive_where_they_are() -> None:
    """lam = gamma = 1 and V = 0: A is what is still to come. 1, 2 with beta 1 and log-ratios ln 2, 0: 3 - ln 2, 2."""
    sample = by_hand([[1, 1]], [7], token_reward=[[1, 2]])
    sample = sample.but(ref_logprob=sample.old_logprob - [[math.log(2), 0]])
    got = _advantages("ppo", sample, token_reward=True, beta=1.0, whiten=False)
    np.testing.assert_allclose(got, [3 - math.log(2), 2], rtol=1e-12)


def test_the_entropy_reward_of_a_token_is_its_negative_log_probability() -> None:
    """Probabilities of 1/4, factor 1/2 and reward 7: log 2 arrives at both tokens, 7 at the last."""
    got = _advantages("ppo", by_hand([[1, 1]], [7]), entropy=0.5, whiten=False)
    np.testing.assert_allclose(got, [7 + 2 * math.log(2), 7 + math.log(2)], rtol=1e-12)


def test_ospo_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 1/2 / (d + 1e-6), d = sqrt(1/2). Two segments of two tokens, worth 3/4 and 1/4: 2φ - Σφ
    is ±1/2, over d + 1e-6 that is ±a. A mean of a, 2a and 0. The wrong response has one token, and nothing to share."""
    a = 0.5 / (math.sqrt(0.5) + 1e-6)
    sample = by_hand([[1, 1, 1, 1], [1]], [1, 0], gain=[[0.75, 0.75, 0.25, 0.25], [0.3]])
    np.testing.assert_allclose(
        _advantages("ospo", sample, segments=2), [2 * a, 2 * a, 0, 0, -a], rtol=1e-12, atol=1e-12
    )
    moves("ospo", sample, None, [[-2 / 4, -2 / 4, 0, 0], [1]], unit=a / 2, segments=2)


def test_rto_by_hand() -> None:
    """Reward 3, V = 0, lam 1: A is what is still to come. DPO likes the tokens 2, 8 and 1/2 times as much as
    the reference: half the log within ±0.4 is ln 2 / 2, 0.4, -ln 2 / 2. Old over reference is 2 at the last: -ln 2."""
    ln2 = math.log(2)
    sample = by_hand([[1, 1, 1]], [3], p_old=0.05)
    sample = sample.but(ref_logprob=sample.old_logprob - [[0, 0, ln2]])
    sample = sample.but(teacher_logprob=sample.ref_logprob + np.array([ln2, 3 * ln2, -ln2]))
    got = _advantages("rto", sample, dpo=0.5, bound=0.4, beta=1.0, lam=1.0, whiten=False)
    last = 3 - ln2 - ln2 / 2
    np.testing.assert_allclose(got, [last + 0.4 + ln2 / 2, last + 0.4, last], rtol=1e-12)


def test_lambda_of_a_length() -> None:
    """alpha 1/2: two tokens have lam = 1 - 1/max(1, 1) = 0, four 1 - 1/2: A_1 = δ_1 and δ_1 + δ_2/2 + δ_3/4 + δ_4/8."""
    sample = by_hand([[1, 1], [1, 1, 1, 1]], [1, 1], value=[[0.25, 0.5], [0.25, 0.5, 0.5, 0.5]])
    got = _advantages("vapo", sample, alpha=0.5, whiten=False, coef=0.0)
    np.testing.assert_allclose(got[[0, 1, 2]], [0.25, 0.5, 0.25 + 0.5 / 8], rtol=1e-12)


def test_right_responses_have_a_denominator_of_their_own() -> None:
    """Two right tokens of three, coef 0.3: each has the slope -0.3 / 2, whatever rows are evaluated together."""
    sample = by_hand([[1, 1], [1]], [1, 0])
    sample = sample.but(value=np.where(sample.mask, sample.reward[:, None], 0))
    objective = tokenpo.method("vapo", coef=0.3)
    got = run(objective, sample)
    np.testing.assert_allclose(got.gradient, [[-0.15, -0.15], [0, 0]], rtol=1e-12)
    close(run(objective, sample, pieces=[slice(0, 1), slice(1, 2)]), got)


CLIPS = [(lam, clip) for lam in (1.0, 0.3) for clip in (0.1, math.inf)]


@pytest.mark.parametrize(("lam", "clip"), CLIPS)
def test_value_loss_is_its_oracle(lam: float, clip: float) -> None:
    """Value and slope, whole and in pieces, with tokens of tools between."""
    for seed, sample in enumerate(batches("ppo")):
        objective = tokenpo.method("ppo", critic_lam=lam, value_clip=clip, gamma=0.9)
        step = assemble(objective, tensors(sample))
        target = oracle.gae(sample, oracle.arriving(sample), lam, 0.9)[1]
        v = sample.value + np.random.default_rng(seed).normal(size=sample.mask.shape)
        value, slope = oracle.value_loss(sample, v, target, clip)
        for pieces in ((slice(None),), (slice(0, 3), slice(3, None))):
            leaf = torch.tensor(np.where(sample.mask, v, np.nan), requires_grad=True)
            facts, credit = step.batch.rollouts, step.batch.credit
            losses = [objective.value_loss(facts.rows(p), credit.rows(p), leaf[p], step.totals) for p in pieces]
            total = torch.stack([loss.value for loss in losses]).sum()
            total.backward()
            np.testing.assert_allclose(float(total.detach()), value, rtol=1e-12)
            np.testing.assert_allclose(leaf.grad, slope, rtol=1e-10, atol=1e-15)


def test_value_loss_by_hand() -> None:
    """R = 1, V = 0, v = 0.3 and 2: G = 1. The clip at 0.2 keeps (0.2 - 1)² > (0.3 - 1)², without a slope; of the second
    (2 - 1)² > (0.2 - 1)² keeps its slope 1. Loss (0.64 + 1) / 4."""
    objective = tokenpo.method("ppo", value_clip=0.2)
    step = assemble(objective, tensors(by_hand([[1, 1]], [1])))
    leaf = torch.tensor([[0.3, 2.0]], dtype=torch.float64, requires_grad=True)
    loss = objective.value_loss(step.batch.rollouts, step.batch.credit, leaf, step.totals)
    loss.value.backward()
    np.testing.assert_allclose([float(loss.value.detach()), *leaf.grad[0]], [0.41, 0, 0.5], rtol=1e-12)


def test_the_critic_is_fitted_to_the_shaped_reward() -> None:
    """Three tokens of at most three, with a cache of two: the penalty is 1, and so the target 1 - 1."""
    objective = tokenpo.method("ppo")
    shaped = tokenpo.Objective(
        objective.credit, objective.surrogate, objective.aggregate, shaping=(SoftOverlong(3, 2),), critic=Critic()
    )
    step = assemble(shaped, tensors(by_hand([[1, 1, 1]], [1])))
    assert not step.batch.credit.signals[Critic()].any()


def test_an_objective_without_a_critic_has_no_value_loss() -> None:
    objective = tokenpo.method("grpo")
    step = assemble(objective, tensors(ragged(0)))
    with pytest.raises(tokenpo.TokenPOError, match="grpo has no critic to train"):
        objective.value_loss(step.batch.rollouts, step.batch.credit, step.logprob, step.totals)


def test_fishers_test_is_scipys() -> None:
    """All tables of up to 8 right and 5 wrong responses; p of [[1, 9], [11, 3]] is 0.002759 (Fisher's tea, larger)."""
    from scipy.stats import fisher_exact

    tables = [
        (a, b, m - a, n - b) for m in range(1, 9) for n in range(1, 6) for a in range(m + 1) for b in range(n + 1)
    ]
    tables.append((1, 9, 11, 3))
    seen = fisher(*(torch.tensor(x, dtype=torch.float64) for x in zip(*tables, strict=True)))
    expected = [fisher_exact([[a, b], [c, d]]).pvalue for a, b, c, d in tables]
    np.testing.assert_allclose(seen.numpy(), expected, rtol=1e-9)
    assert seen[-1] == pytest.approx(0.0027594561852200836, rel=1e-9)

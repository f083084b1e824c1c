"""Methods whose advantage is special, by hand, and the laws that their pages state. What shaping adds."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import Sample, by_hand, close, facts, moves, of, outcome, ragged, run, score, worked
from tokenpo.core.parts import SoftOverlong
from tokenpo.core.trial import example
from tokenpo.methods import METHODS
from tokenpo.methods.rewards import BestMargin

THREE = 1 / (1 + 1e-6)  # advantages of rewards 2, 1, 0: ±THREE and 0
PAIR = 0.5 / (np.sqrt(0.5) + 1e-6)  # of rewards 1, 0: ±PAIR
LEFT = by_hand([[2, 1.0], [0.5], [1], [1]], [3, 1, 6, 6], [0, 0, 1, 1])
ONE_OF_FOUR = by_hand([[1.1, 1.5], [0.5], [2.0], [1.0]], [1, 0, 0, 0])
HALF = 0.5 / (np.sqrt(0.5) + 0.5)
QUARTER = float(np.log(0.25))
EXAMPLES = [
    # rewards 3, 1, 2 against the mean of the other two: 3 - 1.5, 1 - 2.5, 2 - 2; 1.1, 1.5 clipped at 1.2; 1
    worked("rloo", by_hand([[1.1, 1.5], [1.0], [1.3]], [3, 1, 2]), -(2.3 - 1), [[-1.1, 0], [1, 0], [0, 0]],
           unit=1.5 / 4),
    # groups (1, 0) and (1, 1): ±1/2 over the deviation of 1, 0, 1, 1, (9/16 + 3/16) / 3 = 1/4; equal ones get 0
    worked("lite_ppo", by_hand([[1.1, 1.5], [1.0], [2.0], [1]], [1, 0, 1, 1], [0, 0, 1, 1]), -(2.3 - 1),
           [[-1.1, 0], [1], [0], [0]], unit=0.5 / (0.5 + 1e-6) / 5),
    # of 1/2, -1/2, 0, 0: their deviation is sqrt(1/6)
    worked("lite_ppo", by_hand([[1.1, 1.5], [1.0], [2.0], [1]], [1, 0, 1, 1], [0, 0, 1, 1]), -(2.3 - 1),
           [[-1.1, 0], [1], [0], [0]], unit=0.5 / (6**-0.5 + 1e-6) / 5, of="advantages"),
    # 1/4 and -3/4 over sqrt(3/16), ddof 0; 2 and 1.5 are clipped at 1.2
    worked("prpo", by_hand([[1.1, 1.5], [1.0], [2.0], [1]], [1, 0, 1, 1], [0, 0, 1, 1]), -(2.3 - 3 + 1.2 + 1),
           [[-1.1, 0], [3], [0], [-1]], unit=0.25 / ((3 / 16) ** 0.5 + 1e-6) / 5),
    # 1/2 and -1/2; sampled at 1/4, now at 1/4 · 1.1 and · 1.2: KLs of 0.00165 and 0.0064, mean 0.00403 > 0.003; at
    # 1/4 · 1.1 alone it stays
    worked("flash_reinforce", by_hand([[1.1, 1.2], [1.1]], [1, 0], rollout_logprob=[[QUARTER] * 2, [QUARTER]]), 0.55,
           [[0, 0], [0.55]], unit=1 / 2),
    # rewards 1, 0 against 0.25 of a greedy response: 0.75 and -0.25; a group of one learns likewise
    worked("remax", by_hand([[1.1, 1.5], [1.0]], [1, 0]).but(baseline=np.array([0.25, 0.25])), -(0.75 * 2.3 - 0.25),
           [[-0.75 * 1.1, 0], [0.25, 0]], unit=1 / 3),
    # rewards 3, 0 of lengths 1, 2: the baseline is 3/3 = 1: A = 2, -1. p_old = 1/4, lp = log(r / 4); three tokens
    worked("opo", by_hand([[2], [0.5, 1]], [3, 0]), -(2 * np.log(1 / 2) - np.log(1 / 8) - np.log(1 / 4)),
           [[-2, 0], [1, 1]], unit=1 / 3),
    # rewards 3, 1 and a pair of equals: B = 4, M = 2: A = 2, -2, 0, 0. lp = log(r / 4); five tokens, four rows
    worked("gpg", LEFT, -2 * (np.log(1 / 2) + np.log(1 / 4) - np.log(1 / 8)), [[-2, -2], [2], [0], [0]], unit=1 / 5),
    worked("gpg", LEFT, None, [[-1, -1], [2], [0], [0]], unit=1 / 4, sequence_mean=True),
    # rewards 1, 0.5, -1: the likelihood of the first two, weighted; p_old = 1/4; four tokens
    worked("raft", by_hand([[2, 1.0], [0.5], [2]], [1, 0.5, -1]),
           -(np.log(1 / 2) + np.log(1 / 4) + 0.5 * np.log(1 / 8)), [[-1, -1], [-0.5], [0]], unit=1 / 4),
    # rewards 1, 0.5, -1: ratios of the first two, weighted; 1.5 is clipped at 1.2; four tokens
    worked("raft_pp", by_hand([[1.1, 1.5], [0.5], [2]], [1, 0.5, -1]), -(2.3 + 0.25), [[-1.1, 0], [-0.25], [0]],
           unit=1 / 4),
    # rewards 1, -1 and an all-right pair that is rejected: 1.1, 1.5 clipped at 1.2; -2; five tokens are counted
    worked("reinforce_rej", by_hand([[1.1, 1.5], [2], [1], [1]], [1, -1, 1, 1], [0, 0, 1, 1]), -(2.3 - 2),
           [[-1.1, 0], [2], [0], [0]], unit=1 / 5),
    # three tokens of reward 1, one of reward -1: mean 1/2, variance (3/4 + 9/4) / 3 = 1: A = 1/2 and -3/2 over s;
    # 1.1, 1, and 1.5 clipped at 1.2; 2 unclipped
    worked("reinforce_pp", by_hand([[1.1, 1, 1.5], [2.0]], [1, -1], [0, 5]), -(3.3 * 0.5 - 3), [[-0.55, -0.5, 0], [3]],
           unit=1 / np.sqrt(1 + 1e-8) / 4),
    # rewards 3, 1 and a lone 7: x = 1, 1, -1, 0 over four tokens: mean 1/4, variance (9/16 · 2 + 25/16 + 1/16) / 3;
    # 1.1, 1.5 clipped at 1.2; 1; the lone token has A = -1/4 and 0.5 is held at 0.8
    worked("reinforce_pp_baseline", by_hand([[1.1, 1.5], [1.0], [0.5]], [3, 1, 7], [0, 0, 1]),
           -(2.3 * 0.75 - 1.25 - 0.8 * 0.25), [[-1.1 * 0.75, 0], [1.25], [0]], unit=1 / np.sqrt(44 / 48 + 1e-8) / 4),
    # One of four right: the mean is 1/4, the variance (9 + 1 + 1 + 1) / 16 / 3 = 1/4, A = 1 / (1/2 + 1e-6).
    # 1.1 stays, 1.5 is clipped at 1.2; the wrong ones do not move. Five tokens.
    worked("grpo_passk", ONE_OF_FOUR, -2.3, [[-1.1, 0], [0], [0], [0]], unit=1 / (0.5 + 1e-6) / 5),
    worked("grpo_passk", ONE_OF_FOUR, -2.3, [[-1.1, 0], [0], [0], [0]], unit=1.0 / 5, std=False),
    # One of four right: A = 0.75 / (0.25 + 1e-6) = 3 b and -b with b = 1 / (1 + 4e-6). 1.1 stays, 1.5 is clipped at
    # 1.2; of the wrong ones 0.5 is clipped at 0.8, 2 stays, 4 meets the dual clip at 3. Five tokens.
    worked("maxrl", by_hand([[1.1, 1.5], [0.5], [2.0], [4.0]], [1, 0, 0, 0]), -(3 * 2.3 - 0.8 - 2 - 3),
           [[-3.3, 0], [0], [2], [0]], unit=1 / (1 + 4e-6) / 5),
    # mean entropies 1, 2, 6, their mean 3: A = 3, 0, -1/2 times THREE; row 0: 1.1 and 1.5 clipped at 1.2
    worked("edge_grpo", by_hand([[1.1, 1.5], [1.3], [1]], [2, 1, 0], old_entropy=[[0.5, 1.5], [2], [6]]),
           -(1.15 * 3 - 0.5), [[-1.65, 0], [0], [0.5]], unit=THREE / 3),
    # a deviation of 1 / sqrt 2, and eps 0.5 beside it
    worked("edge_grpo", by_hand([[1.0], [1.0]], [1, 0], old_entropy=[[1.0], [1.0]]), None, [[-HALF / 2], [HALF / 2]],
           eps=0.5),
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.args[0])
def test_by_hand(example) -> None:
    example()


def _advantages(name: str, sample: Sample, **options) -> np.ndarray:
    """Of the response tokens, row by row."""
    return outcome(name, sample, **options).terms["advantage"][sample.mask]


def _of_rewards(name: str, reward: list[float], group: list[int] | None = None, **options) -> list[float]:
    """Of one-token rollouts at ratio 1 with these rewards."""
    return _advantages(name, by_hand([[1.0]] * len(reward), reward, group), **options).tolist()


def test_reinforce_rej_shaping_makes_no_group_mixed() -> None:
    """All right, and all wrong, one of each half too long: nothing to learn, whatever they pay."""
    sample = by_hand([[1, 1, 1], [1], [1, 1, 1], [1]], [1, 1, 0, 0], [0, 0, 1, 1])
    objective = dataclasses.replace(tokenpo.method("reinforce_rej"), shaping=(SoftOverlong(4, 2),))
    assert not run(objective, sample).gradient.any()
    mixed = run(objective, by_hand([[1, 1, 1], [1]], [1, 0]))
    np.testing.assert_allclose(mixed.gradient, [[-0.5 / 4] * 3, [0, 0, 0]], rtol=1e-12)


def test_eb_cispo() -> None:
    """Groups (1, 1, 0) and (0, 0, 0), one token each: within (2/9·3)/4 = 1/6. Means 2/3 and 0: variance 2/9; between
    2/9 - 1/18 = 1/6: kappa 1, so V = (2 mates + 1 rest)/3. The rest is 0 for the first group, 2/3 for the second.

    First group: V = 2·(1/2)/3 = 1/3 for a right one, A 2/3; V = 2/3 for the wrong one. Second: V = 2/9.
    Deviation of the batch: mean 1/3, squares 2·4/9 + 4·1/9 = 4/3, over 5: sqrt(4/15). Ratios 1.1, 4 (capped at 3), 1.
    """
    sample = by_hand([[1.1], [4.0], [1.0], [1.0], [1.0], [1.0]], [1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1])
    credit = np.array([2 / 3, 2 / 3, -2 / 3, -2 / 9, -2 / 9, -2 / 9]) / ((4 / 15) ** 0.5 + 1e-6)
    got = moves("eb_cispo", sample, None, (-credit * [1.1, 3, 1, 1, 1, 1] / 6)[:, None])
    np.testing.assert_allclose(got.terms["advantage"][:, 0], credit, rtol=1e-12)


ALIKE, LONE = 0.5 / ((1 / 3) ** 0.5 + 1e-6), 0.5 / (0.3**0.5 + 1e-6)


@pytest.mark.parametrize(
    ("reward", "group", "expected"),
    [
        # no variance between means: V is the mean 1/2 of the other group; s² = 1/3
        ([1, 0, 0, 1], [0, 0, 1, 1], [ALIKE, -ALIKE, -ALIKE, ALIKE]),
        # nothing varies within, kappa = 0, and nobody did better than his mates: exactly 0
        ([1, 1, 0, 0], [0, 0, 1, 1], [0] * 4),
        # a lone response: kappa = 0, and 1 less the mean 1/2 of the others; s² of five rewards is 3/10
        ([1, 1, 0, 0, 1], [0, 0, 1, 1, 2], [0, 0, 0, 0, LONE]),
        *(([reward] * 7, [0, 0, 0, 1, 1, 1, 2], [0] * 7) for reward in (0.1, 1 / 3, 1e8 / 3, -0.7)),
    ],
)
def test_eb_cispo_leans_on_other_prompts(reward: list[float], group: list[int], expected: list[float]) -> None:
    np.testing.assert_allclose(_of_rewards("eb_cispo", reward, group), expected, rtol=1e-12)


def test_grpo_passk_leads_over_the_second_best() -> None:
    """Rewards 3, 1, 0: mean 4/3, variance (25 + 1 + 16) / 9 / 2 = 7/3; A = (3 - 1) / (sqrt(7/3) + 1e-6)."""
    assert _of_rewards("grpo_passk", [1, 3, 0]) == pytest.approx([0, 2 / (np.sqrt(7 / 3) + 1e-6), 0], rel=1e-12)


@pytest.mark.parametrize(("reward", "group"), [([1, 1, 0], [0, 0, 0]), ([1, 2, 3], [0, 1, 2]), ([0.1] * 3, [0] * 3)])
def test_grpo_passk_learns_nothing_from_a_tie_or_alone(reward: list[float], group: list[int]) -> None:
    bare = dataclasses.replace(tokenpo.method("grpo_passk"), credit=BestMargin(eps=0.0))
    assert not run(bare, by_hand([[1.0]] * 3, reward, group)).gradient.any()


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
def test_maxrl_advantages(options: dict, mixed: list[float], wrong: float, right: float) -> None:
    """One of four right, none, all; and of a group of one, 0. The 1e-6 below the mean is all that the numbers miss."""
    assert _of_rewards("maxrl", [1, 0, 0, 0], **options) == pytest.approx(mixed, rel=1e-5)
    assert _of_rewards("maxrl", [0] * 4, **options) == pytest.approx([wrong] * 4, abs=2e-6)
    assert _of_rewards("maxrl", [1] * 4, **options) == pytest.approx([right] * 4, abs=2e-6)
    assert _of_rewards("maxrl", [1], **options) == _of_rewards("maxrl", [0], **options) == [0]


@pytest.mark.parametrize("options", [{}, {"order": 2}])
def test_maxrl_refuses_negative_rewards_where_they_count(options: dict) -> None:
    sample = by_hand([[1.0], [1.0]], [1, -0.5])
    with pytest.raises(tokenpo.TokenPOError, match=r"^maxrl needs rewards >= 0, .*, got -0\.5: give rewards of"):
        outcome("maxrl", sample, **options)
    assert outcome("maxrl", sample.but(mask=np.array([[True], [False]])), **options).value == 0


def _of_confidence(probabilities: list[list[float]], reward: list[float], prompt: float) -> Sample:
    """Responses of these token probabilities at ratio 1, to a prompt of this confidence."""
    width = max(map(len, probabilities))
    mask = np.arange(width) < np.array([[len(row)] for row in probabilities])
    lp = np.log([[*row, *[1.0] * (width - len(row))] for row in probabilities])
    confidence = np.full(len(reward), np.log(prompt))
    return of(mask, np.array(reward), [0] * len(reward), old_logprob=lp, logprob=lp, prompt_logprob=confidence)


# Of five tokens one counts, c = 0.1; of six ceil(1.2) = 2, c = sqrt(0.2 · 0.8) = 0.4; all of them: the geometric means.
ALL = [(0.9**4 * 0.1) ** (1 / 5), (0.9**4 * 0.16) ** (1 / 6)]


@pytest.mark.parametrize(
    ("options", "shifts"),
    [
        ({}, [0.04, 0.01]),
        ({"alpha": 1.0}, [0.4, 0.1]),
        ({"alpha": 1.0, "only_correct": True}, [0.4, 0]),
        ({"alpha": 1.0, "fraction": 1.0}, [0.5 - ALL[0], 0.5 - ALL[1]]),
        ({"alpha": 1.0, "fraction": 1e-6}, [0.4, 0.3]),  # at least one token
    ],
)
def test_arm(options: dict, shifts: list[float]) -> None:
    """A = ±PAIR + alpha · (0.5 - c); at ratio 1 the gradient is -A / 11."""
    sample = _of_confidence([[0.9, 0.9, 0.1, 0.9, 0.9], [0.9, 0.2, 0.9, 0.9, 0.8, 0.9]], [1, 0], 0.5)
    one, other = PAIR + shifts[0], -PAIR + shifts[1]
    moves("arm", sample, -(5 * one + 6 * other), [[-one] * 5, [-other] * 6], unit=1 / 11, **options)


def test_arm_knows_padding_from_a_probability_that_rounding_left_above_1() -> None:
    """1.01 of one token, beside a response of two; c = 1.01 and 0.5 · 1.01 under the root."""
    sample = _of_confidence([[1.01], [0.5, 1.01]], [1, 0], 0.5)
    shifts = 0.5 - np.array([1.01, *[(0.5 * 1.01) ** 0.5] * 2])
    np.testing.assert_allclose(
        _advantages("arm", sample, alpha=1.0, fraction=1.0), np.array([PAIR, -PAIR, -PAIR]) + shifts, rtol=1e-12
    )


def test_ha_dw() -> None:
    """One right of four, C = 0.5: p̂ - C = -1/4, so right answers weigh e^(1/4) and wrong ones e^(-1/4).
    A = 0.75 / (1/2 + 1e-6) and -0.25 / (1/2 + 1e-6), as the deviation of 1, 0, 0, 0 is 1/2."""
    sample, objective = by_hand([[1.0]] * 4, [1, 0, 0, 0]), tokenpo.method("ha_dw", scale=1.0)
    got = run(objective, sample, state=_remembered(objective, [0.5]))
    expected = -np.array([0.75 * math.exp(0.25), *[-0.25 * math.exp(-0.25)] * 3]) / (0.5 + 1e-6) / 4
    np.testing.assert_allclose(got.gradient[:, 0], expected, rtol=1e-12)


def _remembered(objective: tokenpo.Objective, past: list[float]) -> dict:
    """The memory after batches of these mean rewards, the oldest first."""
    state = objective.start()
    for mean in past:
        state = objective.after(state, facts(by_hand([[1.0], [1.0]], [mean, mean])))
    return dict(state)


@pytest.mark.parametrize("past", [[], [0.3], [0.9, 0.1, 0.4, 0.35]])
@pytest.mark.parametrize("options", [{}, {"scale": 1.0, "history": 2}, {"anchor": "current", "scale": 1.5, "low": 0.1}])
def test_ha_dw_is_its_oracle(past: list[float], options: dict) -> None:
    objective = tokenpo.method("ha_dw", **options)
    for sample in (ragged(0), ragged(0, binary=False)):
        got = run(objective, sample, state=_remembered(objective, past))
        close(got, score("ha_dw", sample, past=past, **options))


def test_ha_dw_remembers_the_newest_batches() -> None:
    """A row without tokens is in no mean."""
    objective = tokenpo.method("ha_dw", history=3)
    (numbers,) = _remembered(objective, [0.1, 0.2, 0.3, 0.4]).values()
    assert numbers == pytest.approx({"1": 0.4, "2": 0.3, "3": 0.2}, rel=1e-14)
    (numbers,) = objective.after(objective.start(), facts(by_hand([[1.0], [1.0], []], [1, 0, 1]))).values()
    assert numbers == {"1": 0.5}


def test_ha_dw_stays_finite_with_rewards_on_another_scale() -> None:
    """exp(1e6) would be infinite: the exponent stops at ±20."""
    got = outcome("ha_dw", by_hand([[1.0]] * 4, [3e6, 1e6, 0, 0], [0, 0, 1, 1]))
    assert got.terms["weight"][:2, 0] == pytest.approx([1.3 * math.exp(-20), 1.3 * math.exp(20)], rel=1e-12)


# Their roles are those of the reward before shaping: by hand in test_laws.py, and topr's sign likewise. A small bonus
# changes no label of real: by hand in its own file.
BY_ROLE = {"gtpo", "grpo_s", "topr", "real", "ktae"}
# The reward is in their gain before shaping: by hand in core/parts/test_credit.py.
BY_GAIN = {"vineppo", "spo"}
# They read no reward.
TAUGHT = {"opd", "gkd", "sdpo", "iw_opd"}


def _earned(name: str, rollouts: tokenpo.Rollouts, bonus: torch.Tensor) -> tokenpo.Rollouts:
    """The rollouts that earned so much more, where the method looks for it: one more reward, the outcome, the end."""
    each, arriving = rollouts.need("rewards"), rollouts.need("token_reward").clone()
    last = rollouts.mask.sum(1) - 1
    arriving[torch.arange(len(last)), last] += bonus
    changed = {
        "gdpo": {"rewards": torch.cat([each, bonus[:, None]], 1)},
        "mt_grpo": {"rewards": torch.cat([each[:, :-1], each[:, -1:] + bonus[:, None]], 1)},
    }
    usual = {"reward": rollouts.reward + bonus, "token_reward": arriving}
    return dataclasses.replace(rollouts, **changed.get(name, usual))


EARNING = [(name, {}) for name in sorted(METHODS.keys() - BY_ROLE - BY_GAIN - TAUGHT)]
EARNING += [("otb", {"token_reward": True}), ("gdpo", {"form": "verl"}), ("gdpo", {"form": "nemo_rl"})]
EARNING += [("mt_grpo", {"norm": "joint"}), ("ppo", {"token_reward": True})]


@pytest.mark.parametrize(("name", "options"), EARNING)
def test_a_bonus_is_reward(name: str, options: dict) -> None:
    objective, rollouts = tokenpo.method(name, **options), tokenpo.Rollouts.of(example(3).rollouts)
    draws = torch.rand(rollouts.reward.shape, generator=torch.Generator().manual_seed(0), dtype=rollouts.reward.dtype)
    apart = objective.credit(rollouts, 0.3 * draws)
    added = _earned(name, rollouts, 0.3 * draws)
    together = objective.credit(added, torch.zeros_like(draws))
    without = objective.credit(rollouts, torch.zeros_like(draws))
    shape = rollouts.mask.shape
    apart, together, without = (x.expand(shape)[rollouts.mask] for x in (apart, together, without))
    torch.testing.assert_close(apart, together, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(apart, without, rtol=1e-3)

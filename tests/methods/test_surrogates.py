"""Methods whose ratio or clip is special, by hand: J, ∂J/∂lp, and the laws that their pages state.

VESPO, DHPO and REAL.
"""

import dataclasses

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import Sample, agrees, by_hand, moves, of, outcome, ragged, run, tensors, worked
from oracles.surrogates import label_loss
from tokenpo.core.parts import RolloutCorrection, SoftOverlong
from tokenpo.methods.responses import Gamma

THREE = 1 / (1 + 1e-6)  # advantages of rewards 2, 1, 0: ±THREE and 0
PAIR = 0.5 / (np.sqrt(0.5) + 1e-6)  # of rewards 1, 0: ±PAIR
RATIOS = [[1.1, 1.5], [1.3], [0.5, 2.0]]
R = 1 + np.log(3)
EXAMPLES = [
    # ρ = 4, 1: mean |ρ - 1| = 1.5; ρ = 4, 1/2: 1.75, both above 1. With A > 0 the 4 rises further, with A < 0 it falls
    # back, where it weighs 2; the 1 stands still, and the 1/2 falls further
    worked("vaco", by_hand([[1, 1], [1, 1]], [1, 0], rollout_logprob=np.log([[1 / 16, 1 / 4], [1 / 16, 1 / 2]])),
           -(1 - 2), [[0, -1], [2, 0]], unit=PAIR / 4, delta=1.0),
    # a third of log 1.331 is log 1.1, half of log 4 is log 2
    worked("decoupled", by_hand([[1.331], [4.0]], [1, 0], staleness=[[3], [2]]), -(1.1 - 2), [[-1.1], [2]],
           unit=PAIR / 2),
    # row means: 1.1 and 1.5 clipped to 1.2: 1.15; 0; 0.5 clipped to -0.8 and -2 (no clip above for A < 0): -1.4
    worked("grpo", by_hand(RATIOS, [2, 1, 0]), 0.5, [[-1.1, 0], [0, 0], [0, 2]], unit=THREE / 6),
    # 1.1, 1.5 clipped to 1.28; 0; 0.5 clipped to -0.8, 20 stopped by the dual clip at -10, -2; six tokens
    worked("dapo", by_hand([[1.1, 1.5], [1.3], [0.5, 20.0, 2.0]], [2, 1, 0]), 10.42, [[-1.1], [0], [0, 0, 2]],
           unit=THREE / 6),
    # A = 1, 0, -1 exactly; row sums 1.1 + 1.2 (clipped), 0, -0.8 (clipped) - 2, over the longest response or L
    worked("dr_grpo", by_hand(RATIOS, [2, 1, 0]), 0.5, [[-1.1, 0], [0, 0], [0, 2]], unit=1 / 2 / 3),
    worked("dr_grpo", by_hand(RATIOS, [2, 1, 0]), 0.5, [[-1.1, 0], [0, 0], [0, 2]], unit=1 / 10 / 3, length=10),
    # s = sqrt(1.21 · 1) = 1.1, 1.3, sqrt(0.5 · 2) = 1 as in GSPO; five tokens: J = (2 · 1.1 - 2) / 5, and every token
    # moves by s_i A_i / 5
    worked("tepo_v1", by_hand([[1.21, 1.0], [1.3], [0.5, 2.0]], [2, 1, 0]), -0.2, [[-1.1, -1.1], [0, 0], [1, 1]],
           unit=THREE / 5),
    # s = 1.1 and (0.5 · 2 · 8)^(1/3) = 2: J = (2 · 1.1 - 3 · 2) / 3; every token moves by s A / 3
    worked("luspo", by_hand([[1.21, 1.0], [1.3], [0.5, 2.0, 8.0]], [2, 1, 0]), -(2.2 - 6),
           [[-1.1, -1.1], [0], [2, 2, 2]], unit=THREE / 3),
    # row 0: r = 1 + log 3, σ(log 3) = 3/4: 4 σ = 3, which moves by 4 σ (1 - σ) r = 3/4 r; row 2: (4 / 1.05) / 2
    worked("sapo", by_hand([[R], [1.3], [1.0]], [2, 1, 0]), -(3 - 2 / 1.05), [[-0.75 * R], [0], [1]], unit=THREE / 3),
    # Quantile 0.5, ranks round(1) and round(2.5) = 2: 9 of row 0, and 9, 9, 8 of row 1 are high: clip 0.4, else 0.2.
    # Row 0 turns r over: 1/0.25 = 4 stops at 3 and keeps its gradient; 1/1.1; 1.3 is within 1.4: 1/1.3.
    # Row 1: 0.7 is clipped at 0.8; 0.9; 5 stops at 3 and keeps its gradient; high: 0.7 stays, 0.5 clipped at 0.6; 1.
    worked("aspo", by_hand([[0.25, 1.1, 1.3], [0.7, 0.9, 5, 0.7, 0.5, 1]], [1, 0], p_old=0.1,
                           old_entropy=[[1.0, 2, 9], [1, 2, 3, 9, 9, 8]]),
           -(3 + 1 / 1.1 + 1 / 1.3 - (0.8 + 0.9 + 3 + 0.7 + 0.6 + 1)),
           [[-3, -1 / 1.1, -1 / 1.3], [0, 0.9, 3, 0.7, 0, 1]], unit=PAIR / 9, quantile=0.5),
    # a ratio on a bound is inside: r = 2 with A > 0 and r = 1/2 with A < 0, bounds 1/2 and 2: each counts as it is, not
    # times its beta
    worked("ce_gppo", by_hand([[2.0], [0.5]], [1, 0], p_old=1.0), None, [[-2.0], [0.5]], unit=PAIR / 2,
           low=0.5, high=1.0, beta2=0.25),
    # e^-15 twice: the log of the response's W is held at -20
    worked("topr", by_hand([[np.exp(-15.0)] * 2], [0]), None, [[np.exp(-20.0)] * 2]),
    # an entropy below zero counts as zero: a = 1 and 0: token 1 moves by s = 1 alone, r = 1/2 or not
    worked("dhpo", by_hand([[2.0, 0.5]], [0], old_entropy=[[1.0, -1e-3]]), None, [[2 / 2, 1 / 2]],
           advantage=-np.ones((1, 2)), mixing="entropy"),
    # no advantage at the second token, clipped above: s = e^((0 + 0.4) / 2), times the mean 1/2 of A = 1 and 0
    worked("gmpo", by_hand([[1.0, np.e]], [0]), -np.exp(0.2) / 2, [[-np.exp(0.2) / 4, 0]],
           advantage=np.array([[1.0, 0.0]])),
    # not moved is within bounds of 0, which are closed: both learn; the open ones of rollout_is leave ratio 1 outside
    worked("prime_rl", by_hand([[1.0], [1.0]], [1, 0], p_old=1.0), None, [[-0.5], [0.5]], unit=1 / 2,
           low=0.0, high=0.0),
    *(worked("rollout_is", by_hand([[1.0], [1.0]], [1, 0], p_old=1.0), 0, [[0], [0]], **{side: 0.0})
      for side in ("low", "high")),
    # right: 1 a token, whatever its ratio; wrong: 0.5 is held at 0.8
    worked("up", by_hand([[1.1, 1.5], [0.5]], [1, 0]), -(2 - 0.8), [[-1, -1], [0]], unit=PAIR / 3),
    # p = 2: ρ = sqrt((1 + 1.44) / 2) = sqrt(1.22) of the first, whose tokens move by ρ r² / 2.44 = r² / (2 ρ)
    worked("holder", by_hand([[1.0, 1.2], [1.0]], [1, 0]), -(np.sqrt(1.22) - 1),
           [[-0.5 / np.sqrt(1.22), -0.72 / np.sqrt(1.22)], [1]], unit=PAIR / 2),
    # lengths 1 and 4 of weights 1 and 1/4, over their mean 5/8: 1.6 and 0.4; L = 10
    worked("delta_l", by_hand([[1.0], [1.0] * 4], [1, 0]), 0.0, [[-1.6], [0.4] * 4], unit=PAIR / 10 / 2, alpha=1.0,
           length=10),
    # S = 0.2 and 0, mean 0.1; A = ±1/2: 1/2 - (0.2 - 0.1) and its opposite, times β n/(n - 1) / N = 1
    worked("gvpo", by_hand([[np.exp(0.2)], [1.0]], [1, 0]), None, [[-0.4], [0.4]], beta=1.0),
    # p = 2/3 and 1/3; z = ±1: q = σ(2)
    worked("target_po", by_hand([[2.0], [1.0]], [1, 0]), None, [[-1], [1]], unit=1 / (1 + np.exp(-2)) - 2 / 3),
    # 0.5 - 0.25 > 0.2 up and 0.25 - 0.05 = 0.2 down: the first token leaves whatever its advantage
    worked("prime_rl", by_hand([[2.0], [2.0]], [1, 0], rollout_logprob=[[np.log(0.25)], [np.log(0.25)]]), 0.0,
           [[0], [0]], kl=0.0, both=True),
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.args[0])
def test_by_hand(example) -> None:
    example()


NEITHER = np.array([[1.0], [0.0], [-1.0]])
QUARTER = by_hand([[1.0, 1.0]], [0], old_entropy=[[1.0, 0.25]])
BOUNDS = [
    # half of [0.8, 1.28] and half of [0.9997, 1.0004]; by the entropy all of the first, then a quarter of it
    ("dhpo", QUARTER, {}, [[0.89985] * 2], [[1.1402] * 2]),
    ("dhpo", QUARTER, {"mixing": "entropy"}, [[0.8, 0.949775]], [[1.28, 1.0703]]),
    # of the log-ratio, which is at most 20
    ("gmpo", QUARTER, {"low": 0.3, "high": 0.2}, [[np.exp(-0.3)] * 2], [[np.exp(0.2)] * 2]),
    ("gmpo", QUARTER, {"high": 700.0}, [[np.exp(-0.4)] * 2], [[np.exp(20)] * 2]),
    ("sapo", QUARTER, {}, [[0] * 2], [[np.inf] * 2]),
    # the weight is 1 where the advantage is not negative
    ("topr", by_hand([[1.0]] * 3, [0] * 3), {"advantage": NEITHER}, [[1], [1], [0]], [[1], [1], [1]]),
]


@pytest.mark.parametrize(("name", "sample", "options", "low", "high"), BOUNDS)
def test_the_bounds_that_are_reported(name: str, sample: Sample, options: dict, low: list, high: list) -> None:
    terms = outcome(name, sample, **options).terms
    np.testing.assert_allclose(terms["low"], low, rtol=1e-12)
    np.testing.assert_allclose(terms["high"], high, rtol=1e-12)


def test_dhpo_without_an_upper_clip_has_one_where_the_token_has_no_share() -> None:
    """a = 1, 0: the first token's bound is its own, none, and the second's that of the response, 1.0004."""
    sample = by_hand([[1.0, 1.0]], [0], old_entropy=[[1.0, 0.0]])
    got = outcome("dhpo", sample, mixing="entropy", high=np.inf)
    np.testing.assert_allclose(got.terms["high"], [[np.inf, 1.0004]])
    got = outcome("dhpo", sample, mixing="entropy", sequence_high=np.inf)
    np.testing.assert_allclose(got.terms["high"], [[1.28, np.inf]])


def test_grpo_at_the_bound_the_gradient_lives() -> None:
    """With both clips 0 and ratio 1 the two branches tie: the unclipped one's gradient counts."""
    agrees("grpo", ragged(0).on_policy(), low=0.0, high=0.0)


def test_grpo_holds_log_ratios_at_20() -> None:
    """Value e^±20, no gradient."""
    got = agrees("grpo", by_hand([[np.exp(30.0), 1.0], [np.exp(-30.0), 1.0]], [0, 1], p_old=0.5))
    assert got.value == pytest.approx((np.exp(20) + 1 - np.exp(-20) - 1) * PAIR / 4, rel=1e-12)
    assert got.gradient[0, 0] == got.gradient[1, 0] == 0


@pytest.mark.parametrize("name", ["gspo", "gspo_token"])
def test_gspo(name: str) -> None:
    """s = sqrt(1.21 · 1) = 1.1; row 2: s = sqrt(0.5 · 2) = 1; ∂s/∂lp = s / |o|.

    Clip 3e-4/4e-4: row 0 is clipped to 1.0004, row 2 is worth -1, and only row 2 moves. Clip 0.2/0.2: row 0 moves too.
    """
    sample = by_hand([[1.21, 1.0], [1.3], [0.5, 2.0]], [2, 1, 0])
    tight = outcome(name, sample)
    assert tight.value == pytest.approx(-0.0004 * THREE / 3, rel=1e-9)
    np.testing.assert_allclose(tight.gradient, np.array([[0, 0], [0, 0], [1, 1]]) * THREE / 6, rtol=1e-12)
    moves(name, sample, -0.2, [[-1.1, -1.1], [0, 0], [1, 1]], unit=THREE / 6, low=0.2, high=0.2)


def test_gmpo() -> None:
    """Row 0: 1.21 stays, e is clipped to e^0.4: s = 1.1 e^0.2. Row 2 (A < 0): 4 stays, 1/4 is held at e^-0.4:
    s = 2 e^-0.2. Each unclipped token moves by s A / 2. The middle row has no advantage and is not clipped.
    """
    up, down = 1.1 * np.exp(0.2), 2 * np.exp(-0.2)
    sample = by_hand([[1.21, np.e], [np.e], [4, 0.25]], [2, 1, 0])
    got = moves("gmpo", sample, -2 * (up - down), [[-up, 0], [0, 0], [down, 0]], unit=THREE / 6)
    np.testing.assert_array_equal(got.terms["clipped"], [[0, 1], [0, 0], [0, 1]])


def test_cispo() -> None:
    """1.1 counts 1.1 and 1.5 the cap 1.28; 0.5 counts 0.5 (no bound below) and 2 again 1.28: all move, A lp each."""
    lp, sample = np.log(np.array([1.1, 1.5, 0.5, 2.0]) / 4), by_hand(RATIOS, [2, 1, 0])
    value = -(1.1 * lp[0] + 1.28 * lp[1] - 0.5 * lp[2] - 1.28 * lp[3])
    got = moves("cispo", sample, value, [[-1.1, -1.28], [0], [0.5, 1.28]], unit=THREE / 5)
    assert got.value != pytest.approx(outcome("dapo", sample).value)  # A lp, not A


def test_an_absolute_cap_of_cispo_is_at_least_1() -> None:
    for cap, high in ((1.0, 0.0), (1.5, 0.5), (2.0, 1.0)):
        assert tokenpo.method("cispo", absolute=True, high=cap) == tokenpo.method("cispo", high=high)
    with pytest.raises(tokenpo.TokenPOError, match=r"^cispo: high is 0\.99, expected a number >= 1, as absolute=True"):
        tokenpo.method("cispo", absolute=True, high=0.99)


def test_aspo_cuts_off_what_lies_outside_and_has_an_advantage() -> None:
    """0.5 of a wrong response and 1.5 of a right one lie outside 0.8 and 1.2; of responses that are all right, none."""
    ratios, method = [[0.5, 1.5, 1.0]] * 2, tokenpo.method("aspo", low_eps=0.2, high_eps=0.2)
    right, equal = (run(method, by_hand(ratios, rewards)).terms["clipped"] for rewards in ([1, 0], [1, 1]))
    np.testing.assert_array_equal(right, [[False, True, False], [True, False, False]])
    assert not equal.any()


def test_ce_gppo() -> None:
    """1.5 is beyond 1.2: worth beta2 · 1.2 and moving by it. 0.5 is beyond 0.8: beta1 · 0.8 = 0.6. None is clipped."""
    sample = by_hand(RATIOS, [2, 1, 0])
    got = moves("ce_gppo", sample, -(1.1 + 1.2 - 0.6 - 2), [[-1.1, -1.2], [0, 0], [0.6, 2]], unit=THREE / 5)
    assert not got.terms["clipped"].any()
    equal = outcome("ce_gppo", by_hand([[5.0], [0.1]], [1, 1]), beta1=0.0, beta2=0.0)
    assert not equal.terms["clipped"].any()  # there is no advantage


def test_dppo_tv() -> None:
    """The sampler said 0.2 for every token; cap 1.5.

    Row 0: 0.34 is within 0.2 + 0.15, weight 1.7 capped at 1.5; 0.36 is not; 0.01 may fall: 0.05.
    Row 1: 0.06 is within 0.2 - 0.15, weight 0.3; 0.04 is not; 0.8 may rise, 4 capped at 1.5. Each is worth w A lp.
    """
    sample = by_hand([[1.7, 1.8, 0.05], [0.3, 0.2, 4]], [1, 0], p_old=0.2)
    sample = sample.but(rollout_logprob=sample.old_logprob, old_logprob=sample.old_logprob - 1)  # not the anchor
    total = 1.5 * np.log(0.34) + 0.05 * np.log(0.01) - 0.3 * np.log(0.06) - 1.5 * np.log(0.8)
    moves("dppo_tv", sample, -total, [[-1.5, 0, -0.05], [0.3, 0, 1.5]], unit=PAIR / 6, cap=1.5)


@pytest.mark.parametrize(("threshold", "inside"), [(0.25, True), (0.2499, False)])
def test_dppo_tv_at_the_threshold_a_token_is_inside(threshold: float, inside: bool) -> None:
    """From 1/4 to 1/2 the total variation is 1/4 exactly."""
    got = outcome("dppo_tv", by_hand([[2.0], [1.0]], [1, 0]), threshold=threshold, anchor="old")
    assert bool(got.gradient[0, 0]) is inside


def test_dppo_tv_without_room_leaves_what_comes_back_and_what_has_not_moved() -> None:
    """Right responses at r = 1 and below, wrong ones at r = 1 and above, keep their gradient."""
    got = outcome("dppo_tv", by_hand([[1.0, 0.5, 2.0]] * 2, [1, 0]), threshold=0.0, anchor="old")
    np.testing.assert_array_equal(got.gradient != 0, [[True, True, False], [True, False, True]])


def _kl(q: float, p: float) -> float:
    return q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))


def test_dppo_kl() -> None:
    """The sampler said 0.2: KL(0.2 | 0.3) = 0.026 is within 0.05, KL(0.2 | 0.4) = 0.092 is not; KL(0.2 | 0.1) = 0.044
    is, KL(0.2 | 0.05) = 0.14 is not: row 0 may not rise that far, row 1 may not fall that far, both may go back.
    """
    assert _kl(0.2, 0.3) < _kl(0.2, 0.1) < 0.05 < _kl(0.2, 0.4) < _kl(0.2, 0.05)
    sample = by_hand([[1.5, 2, 0.25], [0.5, 0.25, 2]], [1, 0], p_old=0.2)
    sample = sample.but(rollout_logprob=sample.old_logprob, old_logprob=sample.old_logprob - 1)  # not the anchor
    total = 1.5 * np.log(0.3) + 0.25 * np.log(0.05) - 0.5 * np.log(0.1) - 2 * np.log(0.4)
    moves("dppo_kl", sample, -total, [[-1.5, 0, -0.25], [0.5, 0, 2]], unit=PAIR / 6)


@pytest.mark.parametrize(("threshold", "inside"), [(0.0108, True), (0.0102, False)])
def test_dppo_kl_adds_1e_8_to_the_rest_of_a_certain_token(threshold: float, inside: bool) -> None:
    """From 1 − 1e-3 to 1 − 1e-12: KL = 1e-3 ln((1e-3 + 1e-8) / (1e-12 + 1e-8)) + 0.999 ln 0.999 = 0.0105.

    Nothing added it would be 0.0197, twice as much added 0.0098, half as much 0.0112.
    """
    q = 1 - 1e-3
    assert 1e-3 * np.log((1e-3 + 1e-8) / (1e-12 + 1e-8)) + q * np.log(q) == pytest.approx(0.0105, abs=5e-5)
    sample = by_hand([[1.0], [1.0]], [1, 0])
    sample = sample.but(rollout_logprob=np.full((2, 1), np.log(q)), logprob=np.full((2, 1), -1e-12))
    got = outcome("dppo_kl", sample, threshold=threshold)
    # Row 0 rises further, row 1 means to fall: back to where it was.
    assert bool(got.gradient[0, 0]) is inside and got.gradient[1, 0] != 0


@pytest.mark.parametrize(("rollout", "now", "row"), [(-1e-4, 1e-6, 0), (1e-6, -1e-3, 1)])
def test_dppo_kl_takes_a_log_probability_above_0_for_0(rollout: float, now: float, row: int) -> None:
    """Both are near: KL = 1e-4 ln(1e-4 / 1e-8) − 1e-4 = 8e-4, and 1e-3 the other way, within 0.05."""
    sample = by_hand([[1.0], [1.0]], [1, 0])
    sample = sample.but(rollout_logprob=np.full((2, 1), rollout), logprob=np.full((2, 1), now))
    expected = (-1, 1)[row] * np.exp(now - rollout) * PAIR / 2
    assert outcome("dppo_kl", sample).gradient[row, 0] == pytest.approx(expected, rel=1e-9)


def test_prime_rl() -> None:
    """p_roll = 1/4; ratios 1.6, 2 right: p rose by 0.15, 0.25 > 0.2, so the second is dropped; 0.1, 2 wrong: fell by
    0.225 > 0.2, dropped, and rose, kept. A = ±1/2. Each token pays 0.1 (log q)²."""
    sample = by_hand([[1.6, 2.0], [0.1, 2.0]], [1, 0], rollout_logprob=[[np.log(0.25)] * 2] * 2)
    log = np.log([[1.6, 2.0], [0.1, 2.0]])
    pushed = np.array([[0.8, 0], [0, -1.0]])
    moves("prime_rl", sample, (-0.8 + 1.0 + 0.1 * (log**2).sum()) / 4, -(pushed - 0.2 * log) / 4, kl=0.1)


def test_rollout_is() -> None:
    """The sampler is the old policy: ratios 1.1, 1.3 right and 0.9, 0.7 wrong; 1.3 and 0.7 are outside (0.8, 1.2)."""
    sample = by_hand([[1.1, 1.3], [0.9, 0.7]], [1, 0], rollout_logprob=[[np.log(0.25)] * 2] * 2)
    value = 1.1 * np.log(1.1 / 4) - 0.9 * np.log(0.9 / 4)
    got = moves("rollout_is", sample, -value, [[-1.1, 0], [0.9, 0]], unit=PAIR / 4)
    assert got.terms["clipped"].tolist() == [[False, True], [False, True]]


def test_dro() -> None:
    """Ratios e and 1/e, p_old = 1/4, beta 0.4: J = a lp − 0.2 · 1 and −a lp − 0.2; slopes a − 0.4 and −a + 0.4."""
    value = PAIR * (np.log(0.25) + 1) - PAIR * (np.log(0.25) - 1) - 0.4
    sample = by_hand([[np.e], [1 / np.e]], [1, 0])
    moves("dro", sample, -value / 2, [[-(PAIR - 0.4) / 2], [-(0.4 - PAIR) / 2]], beta=0.4)
    # the push ends where the log-ratio is A / beta
    sample = by_hand([[np.exp(PAIR / 2)], [np.exp(-PAIR / 2)]], [1, 0])
    np.testing.assert_allclose(outcome("dro", sample, beta=2.0).gradient, 0, atol=1e-15)


def test_m2po() -> None:
    """Right at e^0.1, e^0.2, e^1 and wrong at e^-0.4 and, coming back, e^3: of the four that are pushed on, v = 0.01,
    0.04, 0.16, 1 has mean 0.3025. Cut to the third: (0.05 + 2 · 0.16) / 4 = 0.0925, to the second: 0.0325. With a
    budget of 0.06 the third is the first too many: τ = 0.2, bounds e^∓0.2. The bound's own token is beyond it."""
    sample = by_hand([np.exp([0.1, 0.2, 1.0]), np.exp([-0.4, 3.0])], [1, 0])
    gradient, options = [[-np.exp(0.1), 0, 0], [0, np.exp(3.0)]], {"low": 0.1, "high": 0.1}
    got = moves("m2po", sample, None, gradient, unit=PAIR / 5, budget=0.06, **options)
    assert got.terms["clipped"].tolist() == [[False, True, True], [True, False, False]]
    # The least bounds are wider: e^-0.2 = 0.82 and e^0.2 = 1.22 become 0.7 and 1.5.
    wide = outcome("m2po", sample, budget=0.06)
    for terms, low, high in ((got.terms, np.exp(-0.2), np.exp(0.2)), (wide.terms, 0.7, 1.5)):
        assert terms["low"][sample.mask] == pytest.approx(low, rel=1e-10)
        assert terms["high"][sample.mask] == pytest.approx(high, rel=1e-10)
    # Within the budget nothing is clipped.
    assert not outcome("m2po", sample, budget=0.31).terms["clipped"].any()


LEAST = {"low": 0.0, "high": 0.0}


@pytest.mark.parametrize(
    ("steps", "budget", "tau"),
    [
        ([0.5], 0.25, 20.0),  # the mean square is the budget, and does not exceed it
        ([0.5, 1.0], 0.25, 0.0),  # both cut to the first have the mean 1/4, which is not below it: none is held
        ([1e-7, 1.0], 0.25, 0.0),  # the first is held, and its square less 1e-12 is negative
        ([1e-7, 0.5, 1.0], 0.25, np.sqrt(0.25 - 1e-12)),  # (0 + 1/4 + 1/4) / 3 is below it, (0 + 1/4 + 1) / 3 is not
    ],
)
def test_m2po_at_its_budget(steps: list[float], budget: float, tau: float) -> None:
    """Right tokens that rose by so many nats. The wrong response stands still."""
    sample = by_hand([[1.0] * len(steps), [1.0]], [1, 0])
    before = np.where(sample.reward[:, None] > 0, -np.array([steps]), 0)
    sample = sample.but(logprob=0 * before, old_logprob=before)
    terms = outcome("m2po", sample, budget=budget, **LEAST).terms
    np.testing.assert_allclose(terms["high"][sample.mask], np.exp(tau), rtol=1e-12)
    np.testing.assert_allclose(terms["low"][sample.mask], np.exp(-tau), rtol=1e-12)


def test_m2po_rollout_keeps_the_mean_square_below_its_threshold() -> None:
    """The sampler differs by 1/2, 1/2 and 1: means 1/4, 1/4, 1/2. At 1/4 exactly one token stays, at more two."""
    sample = by_hand([[1.0] * 3], [0], p_old=1.0, rollout_logprob=[[-0.5, -0.5, -1.0]])
    for threshold, kept in ((0.25, 1), (0.26, 2), (0.5, 2), (0.51, 3)):
        assert outcome("m2po_rollout", sample, threshold=threshold).terms["weight"].sum() == kept


@pytest.mark.parametrize(("level", "one", "two"), [("sequence", 0.5, 0.5), ("token", 1.0, 0.25)])
def test_topr(level: str, one: float, two: float) -> None:
    """Rewards 1, 0, 0: A = 1, -1, -1; lp = log(r / 4). A right answer counts 1 at any ratio. The wrong one at 2 and 1/4
    has W = 1/2, by tokens 2, cut to 1, and 1/4. The other, at 3, counts 1. Three responses."""
    log, sample = np.log, by_hand([[5, 0.1], [2, 0.25], [3]], [1, 0, 0])
    value = log(5 / 4) + log(0.1 / 4) - one * log(2 / 4) - two * log(0.25 / 4) - log(3 / 4)
    moves("topr", sample, -value, [[-1, -1], [one, two], [1]], unit=1 / 3, level=level)


@pytest.mark.parametrize(
    ("method", "rewards", "labels"), [("topr", [1, 0, 0], [0, -1, -1]), ("real", [1, 0, 0.5], [-1, -1, 1])]
)
def test_shaping_and_labels(method: str, rewards: list[float], labels: list[int]) -> None:
    """Two tokens more than 1, over a cache of 2: -1 on the right answer of three tokens."""
    objective = dataclasses.replace(tokenpo.method(method), shaping=(SoftOverlong(3, 2),))
    got = run(objective, by_hand([[1, 1, 1], [1], [1]], rewards))
    assert got.terms["advantage"][:, 0].tolist() == labels


UP, DOWN = np.ones((1, 2)), -np.ones((1, 2))


def test_dhpo() -> None:
    """A = 1 on one response at r = 0.1 and 22.5: s = sqrt(2.25) = 1.5; A = 0 on another of two. Half and half.

    Token 0: (0.1 + 1.0004) / 2 = 0.5502, of which only r moves, 0.05.
    Token 1: both are clipped, (1.28 + 1.0004) / 2 = 1.1402.
    """
    sample, advantage = by_hand([[0.1, 22.5], [5.0, 5.0]], [0, 0]), np.array([[1.0, 1.0], [0.0, 0.0]])
    got = moves("dhpo", sample, -(0.5502 + 1.1402) / 4, [[-0.05 / 4], [0]], advantage=advantage)
    assert got.terms["clipped"].tolist() == [[0, 1], [0, 0]]
    np.testing.assert_allclose(got.terms["ratio"], [[0.8, 12], [5, 5]], rtol=1e-12)


@pytest.mark.parametrize(
    ("advantage", "phi"),
    [
        (1.0, [np.exp(1.5) / 4, 1, np.exp(-3) * 4]),  # k 2, lambda 3: 1.12042, 1, 0.19915
        (-1.0, [np.exp(1) / 8, 1, np.exp(-2) * 8]),  # k 3, lambda 2: 0.33979, 1, 1.08268
    ],
)
def test_vespo(advantage: float, phi: list[float]) -> None:
    """W = 1/2, 1, 2; the first as 2 · 1/4 in a response of two tokens. φ = e^lambda W^k e^(-lambda W). Four tokens,
    lp = log(r / 4): J = Σ φ A lp / 4, ∂J/∂lp = φ A / 4."""
    logs = [np.log(2 / 4) + np.log(0.25 / 4), np.log(1 / 4), np.log(2 / 4)]
    gradient, given = [[phi[0], phi[0]], [phi[1]], [phi[2]]], np.full((3, 2), advantage)
    sample = by_hand([[2.0, 0.25], [1.0], [2.0]], [0] * 3)
    moves("vespo", sample, np.dot(phi, logs), gradient, unit=-advantage / 4, advantage=given)


E = np.exp
RHO = RolloutCorrection(cap=np.inf)


@pytest.mark.parametrize(
    ("ratios", "rho", "inside", "weight"),
    [
        ([2.0, 1.0], [0.5, 4.0], RHO, 4.0),  # 2 · 1 · 1/2 · 4
        ([2.0, 1.0], [0.5, 4.0], RolloutCorrection(cap=2.0), 2.0),
        # a weight of 0 counts as 1e-8, at its token: e^10 of the other stays
        ([E(10.0), 1.0], [1.0, 9.0], RolloutCorrection(mask=True), E(10) * 1e-8),
    ],
)
def test_vespo_with_the_correction_inside(ratios: list, rho: list, inside: RolloutCorrection, weight: float) -> None:
    """φ(W) = e^3 W² e^(-3 W) of the product W of ratios and weights; two tokens, A = 1."""
    sample = by_hand([ratios], [0], p_old=1e-6)
    sample = sample.but(rollout_logprob=sample.old_logprob - np.log([rho]))
    plain = tokenpo.method("vespo")
    objective = dataclasses.replace(plain, surrogate=dataclasses.replace(plain.surrogate, inside=inside))
    got = run(objective, sample, advantage=UP)
    np.testing.assert_allclose(got.terms["ratio"], [[weight] * 2], rtol=1e-12)
    np.testing.assert_allclose(got.gradient, [[-E(3 - 3 * weight) * weight**2 / 2] * 2], rtol=1e-12)


def test_vespo_bounds_the_ratio_of_a_response() -> None:
    """e^-15 twice: W = 1e-8, φ = e^3 W² e^(-3 W). e^15 twice: W = e^20, whose weight is 0 and cuts the token off, if it
    has an advantage."""
    sample = by_hand([[np.exp(-15.0)] * 2, [np.exp(15.0)] * 2, [np.exp(15.0)] * 2], [0] * 3, p_old=1e-20)
    gradient, advantage = [[-np.exp(3 - 3e-8) * 1e-16 / 6] * 2, [0], [0]], np.array([[1.0] * 2, [1.0] * 2, [0.0] * 2])
    got = moves("vespo", sample, None, gradient, advantage=advantage)
    np.testing.assert_allclose(got.terms["ratio"], [[1e-8] * 2, [np.exp(20)] * 2, [np.exp(20)] * 2], rtol=1e-12)
    assert got.terms["clipped"].tolist() == [[0, 0], [1, 1], [0, 0]]
    assert (got.terms["low"] == 0).all() and (got.terms["high"] == np.inf).all()


@pytest.mark.parametrize(
    ("k", "rate", "log", "phi"),
    [
        (100.0, 0.0, 8.0, 0.0),  # e^800 is no float64
        (3.0, 0.0, np.log(2), 8 * np.exp(-1e-4)),  # a lambda of 0 counts as 1e-4
        (3.0, 5e-5, np.log(2), 8 * np.exp(-1e-4)),
        (3.0, 2e-4, np.log(2), 8 * np.exp(-2e-4)),
    ],
)
def test_vespo_at_the_ends_of_its_range(k: float, rate: float, log: float, phi: float) -> None:
    assert float(Gamma(k, rate)(torch.tensor(log).double())) == pytest.approx(phi, rel=1e-12)


def test_real() -> None:
    """tau 1; s = log 2 right; log 2 on average (4, 1) and 0 wrong. L = log(1 + 1/2) + log(1 + 2 + 1) = log 6, and the
    other group, of equal rewards, counts: L/2. Slopes: right −(1/2)/(3/2) = −1/3, wrong 2/4 and 1/4, by tokens."""
    sample = by_hand([[2.0], [4.0, 1.0], [1.0], [3.0]], [1, 0, 0, 1], [0, 0, 0, 1])
    moves("real", sample, None, [[-1 / 3], [1 / 4, 1 / 4], [1 / 4], [0]], unit=1 / 2, tau=1.0)
    assert label_loss(sample, 1.0)[0] == pytest.approx(np.log(6) / 2, rel=1e-12)


def test_real_has_the_gradient_of_the_loss() -> None:
    """Central differences of L, which the value of the method is not."""
    sample = ragged(3, width=5)
    gradient, step = outcome("real", sample).gradient, 1e-6
    for i, t in zip(*np.nonzero(sample.mask), strict=True):
        way = np.zeros(sample.mask.shape)
        way[i, t] = step
        up, down = (label_loss(sample.but(logprob=sample.logprob + sign * way), 0.5)[0] for sign in (1, -1))
        assert gradient[i, t] == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-9)


def test_real_counts_a_response_at_the_mean_as_wrong() -> None:
    """Rewards 1, 1/2, 0: the middle one, whose advantage is 0, is pushed down and not left out."""
    got = outcome("real", by_hand([[1.0], [1.0], [1.0]], [1, 0.5, 0]))
    np.testing.assert_allclose(got.gradient[:, 0], [-1, 2 / 3, 2 / 3], rtol=1e-12)


@pytest.mark.parametrize("side", [UP.T, DOWN.T], ids=["right", "wrong"])
def test_real_has_nothing_to_tell_apart_in_half_a_group(side: np.ndarray) -> None:
    """The rewards of the whole group label it; an update on the right or the wrong ones alone pushes nothing."""
    one = np.ones((2, 1))
    got = outcome("real", of(one, [1, 1], [0, 0], logprob=-one, old_logprob=-one), advantage=side)
    assert got.value == 0 and not got.gradient.any()


def test_real_is_finite_where_an_exponential_would_overflow() -> None:
    """s / tau = ±1000: what is right for certain has no slope, what is wrong for certain has all of it, 1/tau."""
    for right, wrong, slopes in (
        (0.5, -0.5, [0, 0]),
        (-0.5, 0.5, [-2000, 2000]),
        (0.5, 0.5, [0, 2000]),
        (-0.5, -0.5, [-2000, 0]),
    ):
        got = outcome("real", by_hand([[np.exp(right)], [np.exp(wrong)]], [1, 0]), tau=0.0005)
        np.testing.assert_allclose(got.gradient[:, 0], slopes, rtol=1e-9, atol=1e-200)


def test_holders_power_falls_with_the_rollout_batches() -> None:
    """From 2 to -2 in ten: 2, then 1.6 after the first, 0 after five, and -2 from ten on."""
    power = tokenpo.method("holder", batches=10).surrogate.ratio.power
    numbers, seen = power.start(), []
    rollouts = tokenpo.Rollouts(*(tensors(ragged(0))[name] for name in ("mask", "reward", "group", "old_logprob")))
    for _ in range(13):
        seen.append(float(power(rollouts, numbers)[0, 0]))
        numbers = power.after(numbers, rollouts)
    np.testing.assert_allclose(seen, [*np.linspace(2, -2, 11), -2, -2], atol=1e-12)

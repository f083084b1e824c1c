"""Methods that weigh, drop or hold tokens, by hand, and the laws that their pages state. Covariances."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import tokenpo
from oracle_support import Sample, assemble, by_hand, close, moves, outcome, ragged, run, score, tensors, worked
from oracles.weights import eligible
from oracles.weights import kept as kept_by
from tokenpo.methods.clipping import discounted
from tokenpo.methods.contrib.weights import SparedTokens
from tokenpo.methods.cov import RandomCovariant, covariance

THREE = 1 / (1 + 1e-6)  # advantages of rewards 2, 1, 0: ±THREE and 0
PAIR = 0.5 / (np.sqrt(0.5) + 1e-6)  # of rewards 1, 0: ±PAIR


def _weights(name: str, sample: Sample, **options) -> list[list[float]]:
    weight = outcome(name, sample, **options).terms["weight"]
    return [row[kept].tolist() for row, kept in zip(weight, sample.mask, strict=True)]


def test_adv_reweight() -> None:
    """p_old = 1/40: w = 0.2 / 40 + 0.8 = 0.805. 1.1 and 1.5 (clipped to 1.24) for A > 0, 20 (stopped at 10) and 1 for
    A < 0; k3 to a reference at u = 0.5, which costs 0.1 (log 2 - 0.5) at (0, 0) and moves it by -0.1 · 0.5."""
    sample, w = by_hand([[1.1, 1.5], [20, 1]], [1, 0], p_old=1 / 40), 0.805 * PAIR
    sample = sample.but(ref_logprob=sample.logprob + np.array([[np.log(0.5), 0], [0, 0]]))
    value = -((1.1 + 1.24 - 10 - 1) * w - 0.1 * (np.log(2) - 0.5))
    moves("adv_reweight", sample, value, [[-1.1 * w + 0.1 * 0.5], [0, w]], unit=1 / 4, beta=0.1)


def test_adv_reweight_bounds_the_divergence() -> None:
    """Without reward and at beta 1, log π_ref/π = 2, 4, 6, -4, -6: k3(2) = e² - 3 pulls by e² - 1; k3(4) > 10 and
    6 cost 10 and don't pull; k3(-4) = e⁻⁴ + 3 pulls by e⁻⁴ - 1; -6 costs k3(-5) = e⁻⁵ + 4 and doesn't pull."""
    e, sample = np.exp, by_hand([[1.0] * 5], [1], p_old=1e-3)
    sample = sample.but(ref_logprob=sample.logprob + np.array([2.0, 4, 6, -4, -6]))
    value, gradient = e(2) - 3 + 20 + e(-4) + 3 + e(-5) + 4, [[1 - e(2), 0, 0, 1 - e(-4), 0]]
    moves("adv_reweight", sample, value, gradient, unit=1 / 5, beta=1.0, bounded_kl=True)


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"a": 0.3, "eta": 0.5},
        {"high_first": True, "beta": 0.3, "bounded_kl": True},
        {"dual": 3.0, "beta": 0.0, "high": 0.5},
    ],
)
def test_each_pass_of_lopti_is_its_oracle(part: int, options: dict) -> None:
    one = tokenpo.method("lopti", **options).split()[part]
    close(run(one, ragged(0)), score("lopti", ragged(0), part=part, **options))


def test_lopti() -> None:
    """p_old = 1/4 on the first token of each row and 1/2 on the second: the first pass holds the first column,
    the second the one at the threshold of 1/2. Ratios 1.1 and 1, four tokens."""
    sample, shift = by_hand([[1.1, 1.1], [1, 1]], [1, 0]), np.log([1, 2])
    sample = sample.but(old_logprob=sample.old_logprob + shift, logprob=sample.logprob + shift)
    first, second = (run(one, sample) for one in tokenpo.method("lopti", beta=0.0, eta=0.5).split())
    np.testing.assert_allclose(first.gradient, np.array([[-1.1, 0], [1, 0]]) * PAIR / 4, rtol=1e-12)
    np.testing.assert_allclose(second.gradient, np.array([[0, -1.1], [0, 1]]) * PAIR / 4, rtol=1e-12)
    assert first.value == pytest.approx(-0.1 * PAIR / 4, rel=1e-12)


def test_archer() -> None:
    """Six entropies: the 0.8 quantile is the fifth smallest.

    Row 0: only the token of entropy 9 is above 5: it may rise to 1.5; the others to 1.2. Row 1 has one token, which is
    not above itself: 0.7 is held at 0.8. Tokens of low entropy pay 0.1 k3; u = 0.5 at (0, 0): 0.1 (log 2 - 0.5), moved
    by -0.1 (1 - 0.5); the high one at (0, 5) has u = 0.5 too and pays nothing.
    """
    a = PAIR
    sample = by_hand([[1.1, 1.3, 1, 1, 1, 1.4], [0.7]], [1, 0], old_entropy=[[1.0, 2, 3, 4, 5, 9], [7]])
    reference = sample.logprob.copy()
    reference[0, [0, 5]] += np.log(0.5)
    total = (1.1 + 1.2 + 3 + 1.4 - 0.8) * a - 0.1 * (np.log(2) - 0.5)
    first = [-1.1 * a + 0.1 * 0.5, 0, -a, -a, -a, -1.4 * a]
    moves("archer", sample.but(ref_logprob=reference), -total, [first, [0]], unit=1 / 7, kl=0.1)


LOOSE = {"cov_low": 0.1, "cov_high": 5.0}


def _drawn(objective: Any, sample: Sample, seed: int = 0) -> np.ndarray:
    step = assemble(objective, tensors(sample), seed=seed)
    return (objective.loss(step.batch, step.totals).terms["weight"].numpy() == 0) & sample.mask


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "options", [{}, {"fraction": 0.1, **LOOSE}, {"fraction": 1.0}, {"fraction": 0.05, "low": 0.2, "high": 0.3, **LOOSE}]
)
def test_clip_cov_is_its_oracle(seed: int, options: dict) -> None:
    sample = ragged(seed, binary=seed % 2 == 0)
    got = run(tokenpo.method("clip_cov", **options), sample, seed=seed)
    clip = {k: v for k, v in options.items() if k in ("low", "high")}
    close(got, score("clip_cov", sample, selected=(got.terms["weight"] == 0) & sample.mask, **clip))


@pytest.mark.parametrize("clip", [{}, {"low": 0.2, "high": 0.2}])
def test_clip_cov_draws_everything_eligible_at_fraction_one(clip: dict) -> None:
    sample = ragged(0)
    chosen = eligible(sample, **LOOSE, **clip)
    assert chosen.sum() > 3
    np.testing.assert_array_equal(_drawn(tokenpo.method("clip_cov", fraction=1.0, **LOOSE, **clip), sample), chosen)


def test_clip_cov_draws_uniformly_from_the_eligible() -> None:
    """max(int(0.04 · n), 1) tokens a draw; over 400 draws every eligible token comes up equally often (4 sigma)."""
    sample, draws, objective = ragged(1), 400, tokenpo.method("clip_cov", fraction=0.04, **LOOSE)
    chosen = eligible(sample, **LOOSE)
    k = max(int(0.04 * sample.mask.sum()), 1)
    assert 1 < k < chosen.sum()
    each = [_drawn(objective, sample, seed) for seed in range(draws)]
    assert all(drawn.sum() == k for drawn in each)
    counts, p = np.sum(each, 0), k / chosen.sum()
    assert not counts[~chosen].any()
    assert np.abs(counts[chosen] - draws * p).max() < 4 * np.sqrt(draws * p * (1 - p))


def test_clip_cov_draws_one_token_of_a_small_batch() -> None:
    assert _drawn(tokenpo.method("clip_cov"), ragged(1)).sum() == 1
    assert not _drawn(tokenpo.method("clip_cov", cov_low=1e6, cov_high=1e7), ragged(1)).any()


# One token each, A = a, 0, -a, lp = -1, -2, -6 with mean -3: cov = 2a, 0, 3a.
LP = np.array([[-1.0], [-2.0], [-6.0]])
COVARIANT = by_hand([[1.0]] * 3, [2, 1, 0]).but(old_logprob=LP - np.log([[1.5], [1.0], [0.5]]), logprob=LP)


def test_clip_cov() -> None:
    """With 2.5 < cov < 5 the third token loses its surrogate: J = 1.5 a / 3."""
    moves("clip_cov", COVARIANT, -1.5, [[-1.5], [0], [0]], unit=THREE / 3, cov_low=2.5)
    assert {int(_drawn(tokenpo.method("clip_cov"), COVARIANT, seed).argmax()) for seed in range(20)} == {0, 2}


def test_sent() -> None:
    """int(0.8 · 4) = 3 calm tokens, all but the fourth: lp = -1, -2, -6 with mean -3: cov = 2 a, 0, 3 a. The third,
    r = 0.5, pays 2 |log 0.5|; the second, r = 1.1, pays log(1.1) / 2. J = (1.5 a - 0.5 a - 2 log 2 - log(1.1) / 2) / 4.
    """
    a, ratio, lp = THREE, np.array([[1.5], [1.1], [0.5], [1.0]]), np.array([[-1.0], [-2.0], [-6.0], [-50.0]])
    sample = by_hand([[1.0]] * 4, [2, 1, 0, 1], [0, 0, 0, 1], entropy=[[1.0], [1], [1], [2]])
    sample = sample.but(old_logprob=lp - np.log(ratio), logprob=lp)
    value = -(a - 2 * np.log(2) - np.log(1.1) / 2)
    moves("sent", sample, value, [[-1.5 * a], [0.5], [0.5 * a - 2], [0]], unit=1 / 4)


FIVE = [[5.0, 1], [3], [2, 4]]  # entropies, whose 0.8 quantile is round(3.2) = the fourth smallest: 4 and 5 fork
FORKED = by_hand([[1.1, 1.0], [1.3], [1.0, 2.0]], [2, 1, 0], old_entropy=FIVE)


def test_egspo_chord_is_the_attenuation_where_the_policy_is_undecided_and_0_where_it_is_sure() -> None:
    """p = 1/2, 1 (a little more, by rounding) and 1/4, 4 p (1 - p) = 3/4; the fourth has the highest entropy."""
    logprob = np.array([[np.log(0.5), 1e-9, np.log(0.25), np.log(0.25)]])
    sample = by_hand([[1.0] * 4], [0], old_entropy=[[0.0, 0, 0, 1]]).but(logprob=logprob, old_logprob=logprob)
    weights = _weights("egspo", sample, curve="chord", attenuation=0.4, quantile=1.0)
    np.testing.assert_allclose(weights, [[0.4, 0, 0.3, 1]], rtol=1e-14)


def test_egspo_weighs_without_a_gradient_wherever_the_weight_stands() -> None:
    objective = tokenpo.method("egspo", curve="chord")
    step = assemble(objective, tensors(ragged(0)))
    assert step.batch.policy.logprob.requires_grad
    assert not objective.weights[0].of_batch(step.batch).requires_grad


def test_forking_tokens_keeps_as_many_as_the_authors_code() -> None:
    """⌈0.2 · 7⌉ = 2 of seven, ⌈0.2 · 15⌉ = 3, though 0.2 · 15 is a little above 3 in floating point; one of two."""
    for n, kept in ((7, 2), (15, 3), (2, 1)):
        sample = by_hand([[1.0] * n], [0], old_entropy=[list(np.linspace(0.1, 1, n))])
        for entropy in ("old", "current"):
            terms = outcome("forking_tokens", sample.but(entropy=sample.old_entropy), entropy=entropy).terms
            assert terms["weight"][0].tolist() == [0] * (n - kept) + [1] * kept


def test_fipo() -> None:
    """decay 1 halves: d = log 1.1, log 0.9, log 1.2 give F = log 1.1 + log 0.9 / 2 + log 1.2 / 4, log 0.9 + log 1.2 / 2
    and log 1.2: weights 1.1 · 0.9^½ · 1.2^¼ = 1.0922, 0.9 · 1.2^½ = 0.9859 and 1.2, in [1, 1.15]: 1.0922, 1, 1.15."""
    sample, first = by_hand([[1.1, 0.9, 1.2], [1.0]], [1, 0]), 1.1 * 0.9**0.5 * 1.2**0.25
    gradient = [[-1.1 * first, -0.9, -1.2 * 1.15], [1]]
    got = moves("fipo", sample, None, gradient, unit=PAIR / 4, decay=1.0, most=1.15)
    np.testing.assert_allclose(got.terms["weight"][0], [first, 1.0, 1.15], rtol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 7, 130])
def test_discounted_sums(length: int) -> None:
    x = torch.randn(3, length, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    k = torch.arange(length)
    expected = x @ torch.where(k[:, None] >= k, 0.9 ** (k[:, None] - k).double(), 0.0)
    torch.testing.assert_close(discounted(x, 0.9), expected, rtol=1e-12, atol=1e-13)


def _influenced(influence: list[list[float]], reward: list[float], group: list[int] | None = None) -> Sample:
    """Responses at ratio 1. For rewards 1, 0, 0 the mean is 1/3, the deviation sqrt(1/3)."""
    return by_hand([[1.0] * len(row) for row in influence], reward, group, influence=influence)


A = 1 / 3 / (np.sqrt(1 / 3) + 1e-6)  # advantages of rewards 1, 0, 0: 2 A, -A, -A
PEAK, MIDDLE = 1 + 2 / (2 + 1e-8), 1 + 1 / (2 + 1e-8)
EXAMPLES = [
    # S = (H - log 4) / 4 of H = 2, 2, 2, 0: 1.5 / 4 below the mean, and the deviation is sqrt(3) / 2 / 4
    worked("clip_b", by_hand([[1.0, 1.0], [1.0, 1.0]], [1, 0], old_entropy=[[2.0, 2.0], [2.0, 0.0]]), -1,
           [[-1, -1], [1, 0]], unit=PAIR / 4, mu=1.0),
    # at H = log 4 = -log p, S = 0: D is the drift 4, 0, 3, 5, deviation sqrt(3.5): 3 and 5 lie beyond, one may go
    worked("clip_v", by_hand([[1.0, 1.0], [1.0, 1.0]], [1, 0], entropy=[[np.log(4)] * 2] * 2,
           entropy_drift=[[4.0, 0.0], [3.0, 5.0]]), -1, [[-1, -1], [1, 0]], unit=PAIR / 4, mu=1.0),
    # k = max(1, int(0.006)) = 1: the third token, r = 0.5, pays |log 0.5| and is pushed up by it. No clip at 1.5.
    # J = (1.5 a - 0.5 a - log 2) / 3; ∂J/∂lp = 1.5 a, 0, -0.5 a + 1 over 3.
    worked("kl_cov", COVARIANT, -(THREE - np.log(2)), [[-1.5 * THREE], [0], [0.5 * THREE - 1]], unit=1 / 3),
    # equal rewards: every covariance is 0, and the earlier two of four tokens are held: each pays |log 2|, moved by 1
    worked("kl_cov", by_hand([[2.0, 2.0], [2.0, 2.0]], [1, 1]), 2 * np.log(2), [[1, 1], [0, 0]], unit=1 / 4,
           fraction=0.5),
    # 1.1 of row 0 and 2 of row 2 learn in full; 1 and 1.2 are damped. p = r / 4. Constant: half. Chord: 2 p (1 - p) =
    # 2 · 0.25 · 0.75 = 0.375 and 2 · 0.3 · 0.7 = 0.42.
    worked("egspo", by_hand([[1.1, 1.0], [1.3], [1.2, 2.0]], [2, 1, 0], old_entropy=FIVE), -(1.1 + 0.5 - 1.2 * 0.5 - 2),
           [[-1.1, -0.5], [0], [1.2 * 0.5, 2]], unit=THREE / 5, curve="constant"),
    worked("egspo", by_hand([[1.1, 1.0], [1.3], [1.2, 2.0]], [2, 1, 0], old_entropy=FIVE),
           -(1.1 + 0.375 - 1.2 * 0.42 - 2), [[-1.1, -0.375], [0], [1.2 * 0.42, 2]], unit=THREE / 5, curve="chord"),
    # of row 0 the token 1.1, of row 2 the token 2, over five tokens; with the authors' options over the two kept ones,
    # and at dual 1.5 row 2's token stays at 1.5
    worked("forking_tokens", FORKED, -(1.1 - 2), [[-1.1, 0], [0], [0, 2]], unit=THREE / 5, fraction=0.4),
    worked("forking_tokens", FORKED, -(1.1 - 1.5), [[-1.1, 0], [0], [0, 0]], unit=THREE / 2, fraction=0.4,
           denominator="kept", dual=1.5),
    # p_old = 0.001, so p < 0.002 for r < 2. Rare tokens of row 0 have entropies 1, 2, 3, 4; their 0.75 quantile is
    # round(2.25) = the third smallest, 3: 1 and 2 are below it and go. 2.5 is not rare. Row 1 is blamed: its rare token
    # stays. 4 of the 6 tokens are counted.
    worked("stapo", by_hand([[1.1, 1, 0.9, 1.2, 2.5], [1]], [1, 0], p_old=0.001, entropy=[[2.0, 1, 4, 3, 0.5], [0.1]]),
           -(0.9 + 1.2 + 1.28 - 1), [[0, 0, -0.9, -1.2, 0], [1]], unit=PAIR / 4),
    # The right response's mean influence is (3 + 1) / 2 = 2 = tau. Above it: 2.5, not 2 itself. One of three is right:
    # eta = 2 |1/2 - 1/3| = 1/3. At ratio 1 the gradient is -w A / (|o| · 3).
    worked("nthr", _influenced([[3, 1], [2.5, 1, 2], [-5]], [1, 0, 0]), -(2 - (1 / 3 + 2) / 3 - 1),
           [[-2 / 2, -2 / 2], [1 / 9, 1 / 3, 1 / 3], [1]], unit=A / 3, kl=0),
    # a token of probability 1 is not below 1; of the right ones with less, entropies 1 and 2, the 0.75 quantile is
    # round(0.75) = the second smallest: 1 goes, and three of four are counted
    worked("stapo", by_hand([[1.0, 1.0, 1.0], [1.0]], [1, 0], entropy=[[0.5, 1, 2], [1]]).but(
               **dict.fromkeys(("old_logprob", "logprob"), np.log([[1, 0.5, 0.5], [0.5, 1, 1]]))),
           None, [[-1, 0, -1], [1]], unit=PAIR / 3, prob=1.0),
    # decay 1: F = log(1.2) / 2 and log 1.2. A ratio of 1 is not beyond a safety of 1, and weighs 1.2^½; 1.2 weighs 1
    worked("fipo", by_hand([[1.0], [1.0, 1.2]], [1, 0]), None, [[-1], [1.2**0.5, 1.2]], unit=PAIR / 3, decay=1.0,
           safety=1.0),
    # int(0.4 · 2) = 0 tokens would be calm: one is, that of entropy 1, at both ends at once: it pays log(2) / 2
    *(worked("sent", by_hand([[2.0], [2.0]], [1, 0], entropy=[[1.0 + last], [2.0 - last]]), np.log(2) / 2,
             [[-2 * PAIR + 0.5 * (1 - last)], [2 * PAIR + 0.5 * last]], unit=1 / 2, low_entropy=0.4)
      for last in (0, 1)),
    # fraction 0, always 1: the first token of each response. 1.5 clipped at 1.2; 1, whatever the lengths
    worked("s_grpo", by_hand([[1.5, 1.1], [1.3], [1.0, 2.0, 2.0]], [2, 1, 0]), -0.2, [[0], [0], [1]], unit=THREE / 3,
           fraction=1e-12, always=1),
    # A = ±a with a = 1/2 / (sqrt(1/2) + 1e-4). d is 1, 3, 2 at the three positions, the last two of which only row 0
    # reaches: with alpha = 2, w = 1, 1 + 2 / (2 + 1e-8), 1 + 1 / (2 + 1e-8).
    # Row 0: 1.1, 1 and 1.5 clipped at 1.28. Row 1: 0.7 clipped at 0.8 against -a.
    worked("tw_grpo", by_hand([[1.1, 1, 1.5], [0.7]], [1, 0], divergence=[[1, 3, 2], [1]]),
           -(1.1 + PEAK + 1.28 * MIDDLE - 0.8), [[-1.1, -PEAK, 0], [0]], unit=0.5 / (np.sqrt(0.5) + 1e-4) / 4, alpha=2),
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.args[0])
def test_by_hand(example) -> None:
    example()


def test_nthr_the_weakest_right_response_sets_the_threshold() -> None:
    """Means 4 / 4 = 1 and 3 / 1 = 3: tau = 1, of a mean over tokens. Two of four are right, 2 |1/2 - 1/2| = 0; the
    other group, whose least mean is -1, selects its wrong token by itself, with 2 |1/2 - 2/3| = 1/3."""
    influence = [[4, 0, 0, 0], [3], [1, 1.5], [0.5], [-1], [9], [-0.5]]
    weights = _weights("nthr", _influenced(influence, [1, 1, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1]), kl=0)
    assert weights[:6] == [[1] * 4, [1], [1, 0], [1], [1], [1]]
    assert weights[6] == pytest.approx([1 / 3], rel=1e-12)


def test_nthr_threshold_does_not_depend_on_rounding() -> None:
    """Influences 1e8, 1, -1e8 of the right response have the mean 1/3, which a float32 sum would lose; 0.2 is below."""
    rollouts = tokenpo.Rollouts(
        torch.ones(2, 3, dtype=torch.bool),
        torch.tensor([1.0, 0.0]),
        torch.tensor([0, 0]),
        torch.zeros(2, 3),
        extra={"influence": torch.tensor([[1e8, 1.0, -1e8], [0.2, 0.5, 0.0]])},
    )
    assert SparedTokens(beta=1.0, eta=0.5)(rollouts).tolist() == [[1, 1, 1], [1, 0.5, 1]]


# The mean influence of the right response is (3 - 2.5 + 1) / 3 = 1/2.
HIDDEN = _influenced([[3, -2.5, 1], [0.5, 2], [-2, 0]], [1, 0, 0])


def test_thr() -> None:
    """THR is 3, -2.5, 1 | -0.5, -2 | 2, 0; beyond 1/2 are all but -0.5 (not strictly) and 0. p = 0.1.
    At ratio 1 the gradient is -w A / (|o| · 3)."""
    gradient = [[-2.2 / 3, -1.8 / 3, -2.2 / 3], [0, 0.45], [0.55, 0]]
    moves("thr", HIDDEN, None, gradient, unit=A / 3)
    # p = -0.5 turns the lean; without the mask a token without any influence keeps 1
    assert _weights("thr", HIDDEN, p=-0.5, mask=False) == [[0.5, 1.5, 0.5], [1.5, 1.5], [0.5, 1]]


def test_thr_the_weakest_right_response_of_the_group_sets_the_threshold() -> None:
    """Means 4 and (3 - 1) / 2 = 1: of the wrong 0.9 and 1.5 only the second lies beyond. A group of its own does not
    lower that, and one of equal rewards keeps 1."""
    influence = [[4], [3, -1], [0.9, 1.5], [0.1], [0.01], [7], [0]]
    sample = _influenced(influence, [1, 1, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 2, 2])
    assert _weights("thr", sample, p=0.5) == [[1.5], [1.5, 0], [0, 0.5], [0], [0], [1], [1]]


def test_opsm() -> None:
    """Both responses fell by log 2 a token on average, 0.69 > 0.5: (1/4, 1) and (1/2). Only the wrong one is masked;
    without the mask it would be clipped at 0.8. The right one: (1/4 + 1) / 2, over 2 rows."""
    sample = by_hand([[0.25, 1.0], [0.5]], [1, 0])
    moves("opsm", sample, -1.25, [[-0.25, -1], [0]], unit=PAIR / 4)
    moves("opsm", sample, -(1.25 - 2 * 0.8), [[-0.25, -1], [0]], unit=PAIR / 4, delta=0.7)
    # equal rewards: A = 0, and weight 1 on what is 0
    assert _weights("opsm", by_hand([[0.25], [0.25]], [1, 1])) == [[1], [1]]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [{}, {"fraction": 0.2, "always": 1}, {"low": 0.1, "high": 0.4, "fraction": 0.9}])
def test_s_grpo_is_its_oracle(seed: int, options: dict) -> None:
    sample = ragged(seed, binary=seed % 2 == 0)
    got = run(tokenpo.method("s_grpo", **options), sample, seed=seed)
    uniform = torch.rand(int(sample.mask.sum()), generator=torch.Generator().manual_seed(seed)).numpy()
    clip = {k: v for k, v in options.items() if k in ("low", "high")}
    kept = kept_by(sample.mask, uniform, **{k: v for k, v in options.items() if k not in clip})
    np.testing.assert_array_equal((got.terms["weight"] > 0) & sample.mask, kept)
    close(got, score("s_grpo", sample, selected=kept, **clip))


def test_s_grpo_keeps_what_is_drawn_below_the_fraction() -> None:
    """A draw that equals it is none of them."""
    uniform = torch.rand(3, generator=torch.Generator().manual_seed(0))
    got = outcome("s_grpo", by_hand([[1.0] * 3], [0]), fraction=float(uniform[1]))
    assert ((got.terms["weight"] > 0) == (uniform < uniform[1]).numpy()).all()


# w = clip(2 σ(9 (p - 1/4)), 1, 1.4): 1 at p = 1/4 (σ(0) = 1/2), 1.2 where σ = 0.6, i.e. 9 (p - 1/4) = log 1.5,
# 1.4 (from 1.81) at p = 1/2, 1 (from 0.41) at p = 0.1. Outside: clip(2 (σ(9 p) - 1/4), 1, 1.4): σ = 0.75 at
# p = log 3 / 9: 1; σ = 0.85 at log(17 / 3) / 9: 1.2; σ = 0.95 at log 19 / 9: 1.4; above that 1.4.
INSIDE = np.array([[0.25, 0.25 + np.log(1.5) / 9], [0.5, 0.1]])
OUTSIDE = np.array([[np.log(3), np.log(17 / 3)], [np.log(19), 4.0]]) / 9


@pytest.mark.parametrize(
    ("options", "p", "ratio", "value", "gradient"),
    [
        ({}, INSIDE, 1.1, -(1 + 1.32 - 1.4 - 1), [[-1, -1.32], [1.4, 1]]),
        ({"shape": "outside"}, OUTSIDE, 1.0, -(1 + 1.2 - 1.4 - 1.4), [[-1, -1.2], [1.4, 1.4]]),
        # w r = 1, 1.32 clipped at 1.2 for the right answer; 1.4 and 1 for the wrong one
        ({"weight_placement": "ratio"}, INSIDE, 1.1, -(1 + 1.2 - 1.4 - 1), [[-1, 0], [1.4, 1]]),
    ],
)  # fmt: skip
def test_tr_grpo(options: dict, p: np.ndarray, ratio: float, value: float, gradient: list) -> None:
    """p is the current probability; all ratios are 1 but that at (0, 1)."""
    sample = by_hand([[1, 1], [1, 1]], [1, 0])
    sample = sample.but(logprob=np.log(p), old_logprob=np.log(p / [[1, ratio], [1, 1]]))
    got = moves("tr_grpo", sample, None, gradient, unit=PAIR / 4, **options)
    assert got.value == pytest.approx(value * PAIR / 4, rel=1e-10)


def test_tw_grpo_extremes_are_of_the_group_and_of_living_positions() -> None:
    """Group 0 lives at positions 0 and 1 (d 5 and 6), group 1 at position 0 alone (d 100): its weight is 1, and neither
    it nor the zeros of the padding are group 0's extremes. alpha 1.5: w = 1, 1 + 0.5 / (1 + 1e-8)."""
    sample = by_hand([[1, 1], [1], [1], [1]], [1, 0, 1, 0], [0, 0, 1, 1], divergence=[[5, 6], [5], [100], [100]])
    weights = [weight for row in _weights("tw_grpo", sample, alpha=1.5) for weight in row]
    np.testing.assert_allclose(weights, [1, 1 + 0.5 / (1 + 1e-8), 1, 1, 1], rtol=1e-12)


MASK = torch.tensor([[True, True], [True, False]])
# Over the three tokens A = 1, -1, 3 (mean 1), lp = -1, -2, -6 (mean -3): cov = 0, -2, -6, and 0 - 1 times 0 + 3 = -3
# on the padding, inside the band (-6, 0).
ADVANTAGE = torch.tensor([[1.0, -1.0], [3.0, 0.0]], dtype=torch.float64)
LOGPROB = torch.tensor([[-1.0, -2.0], [-6.0, -1.0]], dtype=torch.float64)


def _batch(advantage: torch.Tensor = ADVANTAGE, logprob: torch.Tensor = LOGPROB, mask: torch.Tensor = MASK):
    n = len(mask)
    rollouts = tokenpo.Rollouts(mask, torch.zeros(n), torch.zeros(n, dtype=torch.long), logprob)
    return tokenpo.Batch(rollouts, tokenpo.Credit(advantage), tokenpo.Policy(logprob))


def _trust(clipped: torch.Tensor):
    """A look at a step whose clipped tokens are these."""
    return lambda: dataclasses.replace(tokenpo.method("kl_cov").surrogate(_batch()), clipped=clipped)


NONE = torch.zeros_like(MASK)


@pytest.mark.parametrize(
    ("low", "high", "chosen"),
    [
        (-6, 0, [[0, 1], [0, 0]]),  # both ends are open, and padding is never chosen
        (-6.1, 0, [[0, 1], [1, 0]]),
        (-6, 0.1, [[1, 1], [0, 0]]),
        (-7, 1, [[1, 1], [1, 0]]),
        (0, 5, [[0, 0], [0, 0]]),
    ],
)
def test_the_band_of_clip_cov(low: float, high: float, chosen: list) -> None:
    """All that are eligible, since the fraction of 1 allows all three."""
    assert RandomCovariant(1.0, low, high)(_batch(), _trust(NONE), None).tolist() == chosen


def test_clipped_tokens_are_not_drawn() -> None:
    clipped = torch.tensor([[False, True], [False, False]])
    assert RandomCovariant(1.0, -7, 1)(_batch(), _trust(clipped), None).tolist() == [[1, 0], [1, 0]]


def test_a_token_alone_covaries_with_nothing_and_none_is_no_division_by_zero() -> None:
    advantage, logprob = torch.tensor([[2.0, 0.0]]), torch.tensor([[-3.0, 0.0]])
    assert covariance(advantage, logprob, 1)[0, 0] == 0
    assert covariance(0 * advantage, 0 * logprob, 0).tolist() == [[0, 0]]

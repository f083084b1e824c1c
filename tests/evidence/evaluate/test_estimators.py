"""The estimators against every subset written out, by hand, and where they have nothing to say."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable
from fractions import Fraction

import pytest

from tokenpo.evidence.evaluate.summary import METRICS, Vote, avg_at_k, maj_at_k, pass_at_k, pass_hat_k


def over_subsets(samples: list, k: int, statistic: Callable[[tuple], Fraction]) -> Fraction:
    """Mean of the statistic over all subsets of k samples, in exact arithmetic."""
    values = [statistic(subset) for subset in itertools.combinations(samples, k)]
    return sum(values, Fraction(0)) / len(values)


def share_right(subset: tuple) -> Fraction:
    return Fraction(sum(correct for _, correct in subset), len(subset))


def majority(subset: tuple, share: dict[str, Fraction]) -> Fraction:
    counts = {answer: sum(a == answer for a, _ in subset) for answer, _ in subset if answer is not None}
    if not counts:
        return Fraction(0)
    winners = [answer for answer, count in counts.items() if count == max(counts.values())]
    return sum((share[answer] for answer in winners), Fraction(0)) / len(winners)


def shares(votes: list[Vote]) -> dict[str, Fraction]:
    """Of each answer, the share of its samples that are right."""
    return {
        answer: Fraction(sum(v.correct for v in votes if v.answer == answer), sum(v.answer == answer for v in votes))
        for answer in {v.answer for v in votes if v.answer is not None}
    }


@pytest.mark.parametrize("n", range(1, 8))
def test_avg_and_both_passes_are_the_mean_over_all_subsets(n):
    for c in range(n + 1):
        samples = [("x", i < c) for i in range(n)]
        for k in range(1, n + 1):
            assert avg_at_k(n, c, k) == pytest.approx(float(over_subsets(samples, k, share_right)), rel=1e-15)
            assert pass_at_k(n, c, k) == float(over_subsets(samples, k, lambda s: Fraction(any(r for _, r in s))))
            assert pass_hat_k(n, c, k) == float(over_subsets(samples, k, lambda s: Fraction(all(r for _, r in s))))


@pytest.mark.parametrize("seed", range(40))
def test_maj_is_the_mean_over_all_subsets(seed):
    draw = random.Random(seed)
    answers = draw.choice([["a"], ["a", "b"], ["a", "b", "c", "d"], ["a", "b", None], list("abcdefghi"), [None]])
    mixed = draw.random() < 0.3
    votes = []
    for answer in draw.choices(answers, k=draw.randint(1, 9)):
        right = answer is not None and (draw.random() < 0.5 if mixed else answer in ("a", "d"))
        votes.append(Vote(answer, right))
    for k in range(1, len(votes) + 1):
        expected = float(over_subsets(votes, k, lambda subset: majority(subset, shares(votes))))
        assert maj_at_k(votes, k) == pytest.approx(expected, abs=1e-12)


def test_by_hand():
    """Five samples, two right: answers 7 7 (right), 3 3, 5; all C(5, 2) = 10 or C(5, 3) = 10 subsets.

    pass@3: 1 - C(3,3)/10 = 9/10. pass^2: C(2,2)/10 = 1/10.
    maj@2: {7,7} wins whole (1 subset); a 7 with another ties, worth 1/2: 2·3 = 6 subsets; 1/10 + 6/20 = 4/10.
    maj@3: {7,7,x}: 3 subsets, won. {7,3,3}: 2 subsets, lost. {7,3,5}: 2·2 = 4 subsets, 1/3 each. {3,3,5}: lost.
           3/10 + 4/30 = 13/30.
    maj@5: 7 and 3 tie at two: 1/2.
    """
    votes = [Vote("7", True), Vote("7", True), Vote("3", False), Vote("3", False), Vote("5", False)]
    assert pass_at_k(5, 2, 3) == 0.9
    assert pass_hat_k(5, 2, 2) == 0.1
    assert maj_at_k(votes, 2) == 0.4
    assert maj_at_k(votes, 3) == pytest.approx(13 / 30, abs=1e-12)
    assert maj_at_k(votes, 5) == 0.5


def test_a_sample_without_an_answer_does_not_vote():
    """One vote for 7 beside two silent samples: right whenever it is drawn, so 1/3, 2/3, 1. A right one without an
    answer leaves the answers unknown."""
    votes = [Vote("7", True), Vote(None, False), Vote(None, False)]
    assert [maj_at_k(votes, k) for k in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 1], abs=1e-12)
    assert maj_at_k([Vote(None, False)] * 3, 2) == 0.0
    assert math.isnan(maj_at_k([Vote(None, True), Vote("3", False)], 1))
    assert math.isnan(maj_at_k([Vote(None, True)] * 4, 2))


@pytest.mark.parametrize("name", METRICS)
def test_undefined_is_nan_and_never_one(name):
    right = [Vote("7", True)] * 3
    assert METRICS[name](right, 3) == 1.0
    for votes, k in ((right, 4), (right, 0), (right, -1), ([], 1), ([], 0)):
        assert math.isnan(METRICS[name](votes, k)), (votes, k)
    votes = [Vote("7", True)] * 3 + [Vote(str(i), False) for i in range(5)] + [Vote(None, False)] * 2
    assert METRICS[name](votes, 1) == 0.3  # at k = 1 all four are the accuracy


def test_many_samples_are_exact_and_fast():
    """With 1024 samples binomial coefficients leave the range of floats; pass@k is still the nearest float.

    maj@299 drops one of 300 samples. 120 for 7 (right), 120 for 3, 60 for 5: 7 wins if a 3 is dropped (120/300),
    ties if a 5 is (60/300, worth half): 150/300.
    """
    exact = 1 - Fraction(math.comb(1024 - 3, 512), math.comb(1024, 512))
    assert pass_at_k(1024, 3, 512) == float(exact)
    votes = [Vote("7", True)] * 120 + [Vote("3", False)] * 120 + [Vote("5", False)] * 60
    assert maj_at_k(votes, 299) == 0.5
    start = time.perf_counter()
    value = maj_at_k([Vote(str(i // 3), i < 60) for i in range(256)], 64)
    assert 0 < value < 1 and time.perf_counter() - start < 5

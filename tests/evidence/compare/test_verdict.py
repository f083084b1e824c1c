"""From values to words, and how often they are wrong when there is nothing to tell."""

from __future__ import annotations

import numpy as np
import pytest

from tokenpo.evidence.compare import verdict
from tokenpo.evidence.compare.verdict import judge, too_few


def values(**methods):
    """`values(a=[...], b=[...])`: one number a seed, from seed 0 on; None where there is none."""
    return {
        label: {seed: float(x) for seed, x in enumerate(numbers) if x is not None} for label, numbers in methods.items()
    }


def one(a, b, **more):
    return judge(values(a=a, b=b, **more), [("a", "b"), *((label, "b") for label in more)])[0]


def test_above_by_hand():
    """Differences 1 ... 6 of 6 seeds: p = 2/64, one comparison, mean 3.5."""
    pair = one([1, 2, 3, 4, 5, 6], [0] * 6)
    assert (pair.mean, pair.p, pair.adjusted) == (3.5, 2 / 64, 2 / 64)
    assert (pair.verdict, pair.above, pair.needed, pair.family) == ("a above b", "a", None, 1)
    assert pair.low < 3.5 < pair.high and pair.low >= 1 and pair.high <= 6
    assert pair.reason == "p = 0.0312, 6 seeds."


def test_swapping_the_pair_swaps_the_words_alone():
    a, b = [3, 1, 4, 1, 5, 9, 2, 6], [2, 0.5, 1, 0, 1, 1, 1, 1]
    ab, ba = one(a, b), one(b, a)
    assert (ab.verdict, ba.verdict) == ("a above b", "b above a")
    assert (ba.mean, ba.low, ba.high) == (-ab.mean, -ab.high, -ab.low)
    assert (ba.p, ba.adjusted, ba.reason) == (ab.p, ab.adjusted, ab.reason)


def test_the_family_corrects():
    """p = 2/64 = 0.03125 alone; of two comparisons 0.0625."""
    pair = one([1] * 6, [0] * 6, c=[0, 1, 0, 1, 0, 1])
    assert (pair.p, pair.adjusted, pair.family, pair.verdict) == (2 / 64, 4 / 64, 2, "inconclusive")
    assert pair.reason.startswith(
        "6 seeds cannot tell anything apart: their smallest possible p is 2 / 2^6 = 0.0312, 2 "
    )


def test_inconclusive_with_the_seeds_that_it_would_take():
    pair = one([-0.5, 0.5, 1.5] * 3, [0] * 9)  # mean 0.5; deviation sqrt(6/8) = 0.8660
    # δ = 0.57735: 7.848879 / 0.33333 + 1.92073 = 25.47 -> 26
    assert (pair.verdict, pair.needed, pair.short) == ("inconclusive", 26, "inconclusive (takes about 26 seeds)")
    assert pair.reason.endswith("about 26 seeds would probably tell (estimate).")


def test_inconclusive_where_nothing_differs_or_almost():
    assert one([1, 2, 3], [1, 2, 3]).reason == "Equal in every seed."
    balanced = one([1, -1] * 4, [0] * 8)
    assert (balanced.needed, balanced.p) == (None, 1.0)
    assert balanced.reason == "p = 1. The seen difference is so near 0 that no number of seeds can be named."


def test_few_seeds_say_so():
    assert too_few(5, 6) == (
        "5 seeds cannot tell anything apart: their smallest possible p is 2 / 2^5 = 0.0625, 6 comparisons make it "
        "0.375; it takes 8."
    )
    assert "Two seeds say too little" in one([1, 2], [0, 0]).reason


def test_equivalence_is_not_told_of_bounds():
    """Equal in nine seeds; in the tenth a never got there, and how far it is from b is not known."""
    made, late = values(a=[5] * 9 + [21], b=[5] * 10), {"a": [9]}
    (pair,) = judge(made, [("a", "b")], late=late, margin=2.0)
    assert (pair.p_equal, pair.equal_adjusted, pair.verdict) == (None, None, "inconclusive")
    assert (pair.differences.known, pair.differences.ahead) == ([0.0] * 9, 1)
    (pair,) = judge(values(a=[5] * 10, b=[5] * 10), [("a", "b")], margin=2.0)
    assert (pair.p_equal, pair.verdict) == (1 / 2**10, "equivalent within ±2")


def test_equivalences_are_a_family_too():
    """Ten seeds: 1 / 2^10 each; of 60 pairs 60 / 2^10 is more than 0.05."""
    labels = [f"m{i}" for i in range(60)]
    made = values(b=[5] * 10, **{label: [5] * 10 for label in labels})
    judged = judge(made, [(label, "b") for label in labels], margin=2.0, resamples=9)
    assert {pair.verdict for pair in judged} == {"inconclusive"}
    assert {pair.verdict for pair in judge(made, [(label, "b") for label in labels[:51]], margin=2.0, resamples=9)} == {
        "equivalent within ±2"
    }


def test_only_seeds_that_both_have_count():
    pair = one([1, 2, None, 4, 5], [0, 0, 0, None, 0])
    assert (pair.seeds, pair.differences.values) == ((0, 1, 4), (1.0, 2.0, 5.0))
    left, right = judge(values(a=[1, None, None], b=[0, 0, 0], c=[2, 2, 2]), [("a", "b"), ("c", "b")])
    assert (left.verdict, left.p, left.short) == ("not compared", None, "not compared")
    assert left.reason == "Fewer than two seeds have a value of both methods."
    assert (right.family, right.adjusted) == (1, right.p)  # what cannot be tested corrects nothing


def test_the_whole_verdict_is_rarely_wrong(monkeypatch):
    """Five methods that are one and the same, 8 seeds, every pair: in 5 % of comparisons at most a verdict is given."""
    monkeypatch.setattr(verdict, "seeds_needed", lambda *_: None)
    labels, rng = "abcde", np.random.default_rng(1)
    baseline = [(label, "a") for label in labels[1:]]
    judged = []
    for _ in range(400):
        shared = rng.normal(size=8)  # what a seed has in common, which pairing takes out
        drawn = {label: dict(enumerate((shared + rng.normal(size=8)).tolist())) for label in labels}
        judged.append([pair.verdict for pair in judge(drawn, baseline, resamples=9)])
    wrong = sum(any(verdict != "inconclusive" for verdict in verdicts) for verdicts in judged) / len(judged)
    assert 0.005 < wrong <= 0.05
    flat = [verdict for verdicts in judged for verdict in verdicts if verdict != "inconclusive"]
    above = sum(verdict.endswith(" above a") for verdict in flat)
    assert 0 < above < len(flat)  # wrong in both directions


@pytest.mark.parametrize("n", [2, 3])
def test_no_pair_is_no_family(n):
    assert judge(values(a=[1] * n), []) == []

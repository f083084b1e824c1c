"""From values to words, and how often they are wrong when there is nothing to tell."""

from __future__ import annotations

import numpy as np

from tokenpo.evidence.compare import verdict
from tokenpo.evidence.compare.verdict import judge, too_few


def values(**methods):
    """`values(a=[...], b=[...])`: one number a seed, from seed 0 on; None where there is none."""
    return {
        label: {seed: float(x) for seed, x in enumerate(numbers) if x is not None} for label, numbers in methods.items()
    }


def one(a, b, **more):
    return judge(values(a=a, b=b, **more), [("a", "b"), *((label, "b") for label in more)])[0]


def test_above_by_hand_and_swapped():
    """Differences 1 ... 6 of 6 seeds: p = 2/64, one comparison, mean 3.5."""
    pair, swapped = one([1, 2, 3, 4, 5, 6], [0] * 6), one([0] * 6, [1, 2, 3, 4, 5, 6])
    assert (pair.mean, pair.p, pair.adjusted) == (3.5, 2 / 64, 2 / 64)
    assert (pair.verdict, pair.above, pair.needed, pair.family) == ("a above b", "a", None, 1)
    assert pair.low < 3.5 < pair.high and pair.low >= 1 and pair.high <= 6
    assert pair.reason == "p = 0.0312, 6 seeds."
    assert (swapped.verdict, swapped.mean, swapped.low, swapped.high) == ("b above a", -3.5, -pair.high, -pair.low)
    assert (swapped.p, swapped.adjusted, swapped.reason) == (pair.p, pair.adjusted, pair.reason)
    assert judge(values(a=[1, 2], b=[1, 2]), []) == []


def test_the_family_corrects():
    """p = 2/64 = 0.03125 alone; of two comparisons 0.0625."""
    pair = one([1] * 6, [0] * 6, c=[0, 1, 0, 1, 0, 1])
    assert (pair.p, pair.adjusted, pair.family, pair.verdict) == (2 / 64, 4 / 64, 2, "inconclusive")
    assert pair.reason.startswith(
        "6 seeds cannot tell anything apart: their smallest possible p is 2 / 2^6 = 0.0312, 2 "
    )


def test_inconclusive_and_why():
    pair = one([-0.5, 0.5, 1.5] * 3, [0] * 9)  # mean 0.5; deviation sqrt(6/8) = 0.8660
    # δ = 0.57735: 7.848879 / 0.33333 + 1.92073 = 25.47 -> 26
    assert (pair.verdict, pair.needed, pair.short) == ("inconclusive", 26, "inconclusive (takes about 26 seeds)")
    assert pair.reason.endswith("about 26 seeds would probably tell (estimate).")
    assert one([1, 2, 3], [1, 2, 3]).reason == "Equal in every seed."
    balanced = one([1, -1] * 4, [0] * 8)
    assert (balanced.needed, balanced.p) == (None, 1.0)
    assert balanced.reason == "p = 1. The difference is so near 0 that no number of seeds can be named."
    assert "Two seeds say too little" in one([1, 2], [0, 0]).reason
    assert too_few(5, 6) == (
        "5 seeds cannot tell anything apart: their smallest possible p is 2 / 2^5 = 0.0625, 6 comparisons make it "
        "0.375; it takes 8."
    )


def test_equivalence_does_not_follow_from_bounds():
    """Equal in nine seeds; in the tenth a never got there, and how far it is from b is not known."""
    numbers, late = values(a=[5] * 9 + [21], b=[5] * 10), {"a": [9]}
    (pair,) = judge(numbers, [("a", "b")], late=late, margin=2.0)
    assert (pair.p_equal, pair.equal_adjusted, pair.verdict) == (None, None, "inconclusive")
    assert (pair.differences.known, pair.differences.ahead) == ([0.0] * 9, 1)
    (pair,) = judge(values(a=[5] * 10, b=[5] * 10), [("a", "b")], margin=2.0)
    assert (pair.p_equal, pair.verdict) == (1 / 2**10, "equivalent within ±2")


def test_equivalences_are_a_family_too():
    """Ten seeds: 1 / 2^10 each; of 60 pairs 60 / 2^10 is more than 0.05."""
    labels = [f"m{i}" for i in range(60)]
    numbers = values(b=[5] * 10, **{label: [5] * 10 for label in labels})
    for count, verdicts in ((60, "inconclusive"), (51, "equivalent within ±2")):
        judged = judge(numbers, [(label, "b") for label in labels[:count]], margin=2.0, resamples=9)
        assert {pair.verdict for pair in judged} == {verdicts}


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
    judged = []
    for _ in range(400):
        shared = rng.normal(size=8)  # what a seed has in common, which pairing takes out
        drawn = {label: dict(enumerate((shared + rng.normal(size=8)).tolist())) for label in labels}
        judged.append([pair.verdict for pair in judge(drawn, [(label, "a") for label in "bcde"], resamples=9)])
    decided = [[verdict for verdict in verdicts if verdict != "inconclusive"] for verdicts in judged]
    assert 0.005 < sum(map(bool, decided)) / len(judged) <= 0.05
    wrong = [verdict for verdicts in decided for verdict in verdicts]
    assert 0 < sum(verdict.endswith(" above a") for verdict in wrong) < len(wrong)  # in both directions

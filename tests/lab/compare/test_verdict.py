"""From values to words, and how often they are wrong when there is nothing to tell.

The statistics against brute force, scipy and by hand.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tokenpo.base.errors import TokenPOError
from tokenpo.lab.compare import verdict
from tokenpo.lab.compare.verdict import bootstrap, holm, judge, sign_flip, too_few


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
    assert (pair.verdict, pair.larger, pair.family) == ("a larger than b", "a", 1)
    assert pair.low < 3.5 < pair.high and pair.low >= 1 and pair.high <= 6
    assert pair.reason == "p = 0.0312, 6 seeds."
    assert (swapped.verdict, swapped.mean, swapped.low, swapped.high) == (
        "b larger than a",
        -3.5,
        -pair.high,
        -pair.low,
    )
    assert (swapped.p, swapped.adjusted, swapped.reason) == (pair.p, pair.adjusted, pair.reason)
    assert judge(values(a=[1, 2], b=[1, 2]), []) == []


def test_the_family_corrects():
    """p = 2/64 = 0.03125 alone; of two comparisons 0.0625."""
    pair = one([1] * 6, [0] * 6, c=[0, 1, 0, 1, 0, 1])
    assert (pair.p, pair.adjusted, pair.family, pair.verdict) == (2 / 64, 4 / 64, 2, "undecided")
    assert pair.reason.startswith(
        "6 seeds cannot tell anything apart: their smallest possible p is 2 / 2^6 = 0.0312, 2 "
    )


def test_undecided_and_why():
    assert one([-0.5, 0.5, 1.5] * 3, [0] * 9).verdict == "undecided"
    assert one([1, 2, 3], [1, 2, 3]).reason == "Equal in every seed."
    balanced = one([1, -1] * 4, [0] * 8)
    assert (balanced.verdict, balanced.p, balanced.reason) == ("undecided", 1.0, "p = 1.")
    assert too_few(5, 6) == (
        "5 seeds cannot tell anything apart: their smallest possible p is 2 / 2^5 = 0.0625, 6 comparisons make it "
        "0.375; train at least 8 (--seeds 8)."
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_finite_number_is_refused(bad):
    """It would be a difference that no pattern of signs reaches, and so a p of 0."""
    with pytest.raises(TokenPOError, match=f"^b seed 2: the value is {bad}, which cannot be compared: give a finite"):
        one([1, 2, 3, 4, 5, 6], [0, 0, bad, 0, 0, 0])
    assert judge(values(a=[1, 2], b=[0, 0], c=[bad, bad]), [("a", "b")])[0].verdict == "undecided"


def test_only_seeds_that_both_have_count():
    pair = one([1, 2, None, 4, 5], [0, 0, 0, None, 0])
    assert (pair.seeds, pair.differences) == ((0, 1, 4), (1.0, 2.0, 5.0))
    left, right = judge(values(a=[1, None, None], b=[0, 0, 0], c=[2, 2, 2]), [("a", "b"), ("c", "b")])
    assert (left.verdict, left.p) == ("not compared", None)
    assert left.reason == "Fewer than two seeds have a value of both methods."
    assert (right.family, right.adjusted) == (1, right.p)  # what cannot be tested corrects nothing


def test_the_whole_verdict_is_rarely_wrong():
    """Five methods that are one and the same, 8 seeds, every pair: in 5 % of comparisons at most a verdict is given."""
    labels, rng = "abcde", np.random.default_rng(1)
    judged = []
    for _ in range(400):
        shared = rng.normal(size=8)  # what a seed has in common, which pairing takes out
        drawn = {label: dict(enumerate((shared + rng.normal(size=8)).tolist())) for label in labels}
        judged.append([pair.verdict for pair in judge(drawn, [(label, "a") for label in "bcde"], resamples=9)])
    decided = [[verdict for verdict in verdicts if verdict != "undecided"] for verdicts in judged]
    assert 0.005 < sum(map(bool, decided)) / len(judged) <= 0.05
    wrong = [verdict for verdicts in decided for verdict in verdicts]
    assert 0 < sum(verdict.endswith(" larger than a") for verdict in wrong) < len(wrong)  # in both directions


# As accuracies differ: multiples of 1/200, often tied, often 0; or anything.
DIFFERENCES = st.one_of(
    st.lists(st.integers(-12, 12).map(lambda i: i / 200), min_size=2, max_size=9),
    st.lists(st.floats(-1e3, 1e3, allow_nan=False).map(lambda x: round(x, 6)), min_size=2, max_size=9),
)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([3.0], 1.0),  # both patterns reach |3|
        ([1.0, 2.0], 0.5),  # ±(1 + 2) of 4
        ([1.0, 2.0, 3.0], 0.25),  # ±6 of 8
        ([1.0, 1.0, 1.0, -1.0], 0.625),  # |Σ| = 2: two patterns have 4, C(4,1) + C(4,3) = 8 have 2; 10 of 16
        ([5.0, 0.0, 0.0], 1.0),  # zeros flip to themselves
        ([0.0, 0.0, 0.0], 1.0),
        ([2.0] * 10, 2 / 1024),
        # With the last two opposed |Σ| is 0.3 or 0.1 (4 patterns each), else 0.9, 0.7, 0.5, 0.3 (2 each): 12 of 16
        # reach 0.3, in floating point only with a tolerance.
        ([0.1, 0.2, 0.3, -0.3], 0.75),
    ],
)
def test_sign_flip_by_hand(differences, p):
    assert sign_flip(differences) == pytest.approx(p, rel=1e-15)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(DIFFERENCES)
def test_sign_flip_is_the_enumeration(d):
    """The same p from the definition, pattern by pattern, in exact arithmetic of fsum."""
    observed, tolerance = abs(math.fsum(d)), 1e-10 * math.fsum(map(abs, d))
    patterns = list(itertools.product((1, -1), repeat=len(d)))
    hits = [abs(math.fsum(s * x for s, x in zip(signs, d, strict=True))) >= observed - tolerance for signs in patterns]
    assert float(sign_flip(d)) == sum(hits) / len(patterns)


def test_beyond_sixteen_the_draws_are_seeded_and_near_the_exact_p():
    d = np.random.default_rng(3).normal(0.35, 1, 17)
    patterns = 1 - 2.0 * (np.arange(2**17)[:, None] >> np.arange(17) & 1)
    exact = float((np.abs(patterns @ d) >= abs(d.sum()) - 1e-9).mean())
    drawn = float(sign_flip(d))
    assert drawn == float(sign_flip(d)) != float(sign_flip(d, seed=1))
    assert abs(drawn - exact) < 4 * math.sqrt(exact * (1 - exact) / verdict.DRAWS)
    assert 0.02 < exact < 0.9
    above = float((patterns @ d >= d.sum() - 1e-9).mean())
    assert abs(float(sign_flip(d, above=True)) - above) < 4 * math.sqrt(above / verdict.DRAWS)
    # (1 + 0 hits) / (1 + draws): never 0, though 2/2^60 is.
    assert float(sign_flip([1.0] * 60)) == pytest.approx(1 / 100_000, rel=1e-12)


@pytest.mark.parametrize("n", [2, 5, 10, 17])
def test_the_interval_is_scipys_percentile_bootstrap_at_the_widened_level(n):
    d = np.sort(np.random.default_rng(n).normal(1.0, 1, n))  # of positive mean and in order: the canonical form
    assert not verdict.canonical(d)[1]
    level = 2 * stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1)) - 1
    expected = stats.bootstrap(
        (d,), np.mean, method="percentile", n_resamples=verdict.RESAMPLES, confidence_level=level,
        rng=np.random.default_rng(0), vectorized=True,
    ).confidence_interval  # fmt: skip
    assert bootstrap(d.tolist()) == pytest.approx((expected.low, expected.high), rel=1e-10)


def test_equivalence_by_hand_and_as_an_interval():
    """Differences 1, 2, 6, margin 5: 5 - d = 4, 3, -1 with the sum 6, which 2 of 8 patterns reach (8 and 6); d + 5 =
    6, 7, 11: 1 of 8. The larger is p, and that of the swapped pair too."""
    assert verdict.equivalence([1.0, 2.0, 6.0], 5.0) == 2 / 8 == verdict.equivalence([-1.0, -2.0, -6.0], 5.0)
    d = np.random.default_rng(0).normal(0.1, 1, 10)
    inside = [
        m for m in np.linspace(-1.5, 1.5, 301) if sign_flip(d - m, above=True) > 0.05 < sign_flip(m - d, above=True)
    ]
    reach = max(map(abs, inside))  # of the 90 % interval: what neither one-sided test rejects
    assert verdict.equivalence(d, reach + 0.02) <= 0.05 < verdict.equivalence(d, reach - 0.02)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 64).map(lambda i: i / 64), min_size=1, max_size=6))
def test_holm_is_the_closure_of_bonferroni(p):
    """Its independent definition: the worst of |S| min p over all sets of hypotheses that hold the one in question."""
    m = range(len(p))
    sets = [s for size in m for s in itertools.combinations(m, size + 1)]
    expected = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets if i in s) for i in m]
    assert holm(p) == pytest.approx(expected, rel=1e-12)

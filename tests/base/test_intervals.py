"""Intervals against SciPy's, and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from tokenpo.base.intervals import Mean, bootstrap, effective, mean_of_numbers, mean_of_shares, student, wilson


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (3, 7), (60, 200)])
def test_a_proportion_has_wilsons(right: int, n: int) -> None:
    expected = stats.binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert wilson(right, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("problems", "skew"), [(20, 0.3), (30, 4.0), (200, 1.0)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_mean_has_scipys_bias_corrected_and_accelerated_bootstrap(problems: int, skew: float, seed: int) -> None:
    """The same generator draws the same resamples there, so the ends agree to rounding, not only in distribution.

    From 20 problems on no resample is the sample itself in another order, where SciPy's ties hang on the last bit.
    """
    values = np.random.default_rng(seed + 7).beta(1, skew, problems)
    # The level at which percentile intervals of normal numbers are as wide as Student's (Hesterberg 2015).
    level = 2 * stats.norm.cdf(math.sqrt(problems / (problems - 1)) * stats.t.ppf(0.975, problems - 1)) - 1
    options = {"n_resamples": 10_000, "method": "BCa", "rng": np.random.default_rng(seed)}
    theirs = stats.bootstrap((values,), np.mean, confidence_level=level, **options).confidence_interval
    assert bootstrap(list(values), seed) == pytest.approx((theirs.low, theirs.high), rel=1e-10)


def test_shares_have_wilsons_of_effective_trials() -> None:
    """The ends solve (m - µ)² = t² f µ(1 - µ) / n. Of 0.5 0.5 1 1: m = 3/4, Σ(x - m)² = 1/4, n m(1 - m) = 3/4, so f =
    (1/4 + 1/2) / (3/4 + 1/2) = 3/5 with t of 3 degrees of freedom. Of trials f = 1."""
    for values, f in (([0.5, 0.5, 1.0, 1.0], 3 / 5), ([0.0, 1.0, 1.0, 1.0], 1.0)):
        m, t = sum(values) / 4, stats.t.ppf(0.975, 3)
        roots = np.roots([1 + t * t * f / 4, -2 * m - t * t * f / 4, m * m])
        assert effective(values) == pytest.approx(sorted(roots), rel=1e-12)
    low, high = effective([0.5, 0.75, 1.0])
    assert effective([0.5, 0.25, 0.0]) == pytest.approx((1 - high, 1 - low), rel=1e-12)


def test_numbers_without_bounds_are_resampled_or_have_none() -> None:
    """Rewards of 0 and 1 alone too: that they are trials is known of accuracies only."""
    for values in ([-2.0, 0.5, 3.0], [0.0, 1.0, 1.0]):
        assert mean_of_numbers(values, 9) == Mean(math.fsum(values) / len(values), *bootstrap(values, 9), "bootstrap")
    for values in ([], [0.3], [-2.0] * 5, [0.1 + 0.2, 0.3]):
        none = mean_of_numbers(values)
        assert math.isnan(none.low) and math.isnan(none.high) and none.kind == ""


def test_the_kind_follows_the_values() -> None:
    assert mean_of_shares([0, 1, 1, 0, 1]) == Mean(0.6, *wilson(3, 5), "wilson")
    assert mean_of_shares([0.25] * 8) == Mean(0.25, *wilson(2, 8), "wilson")
    assert mean_of_shares([0.0] * 4) == Mean(0.0, *wilson(0, 4), "wilson")
    mixed = mean_of_shares([0.0, 0.5, 1.0, 0.25])
    assert mixed == Mean(0.4375, *effective([0.0, 0.5, 1.0, 0.25]), "effective")
    assert mixed.low < 0.4375 < mixed.high
    nothing = mean_of_shares([])
    assert nothing.kind == "" and math.isnan(nothing.low) and math.isnan(nothing.high)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_students_quantile_is_scipys(level):
    for freedom in [1, 2, 3, 4, 5, 9, 10, 29, 30, 199]:
        assert student(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-12)

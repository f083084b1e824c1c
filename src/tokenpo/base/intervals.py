"""Means over problems with 95 % intervals: proportions (Wilson), shares (effective trials), numbers (bootstrap).

The problems are the sample: an interval is for the mean over other problems of the same kind, not over training seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.95
Z = 1.959963984540054  # two-sided 95 %
RESAMPLES = 10_000
_AT_ONCE = 2**22  # largest number of drawn indices in memory
_DIGITS = 12  # decimals; values that differ by less are equal up to rounding


@dataclass(frozen=True)
class Mean:
    """A mean over problems and its 95 % interval: "wilson", "effective", "bootstrap", or "" for none (NaN)."""

    value: float
    low: float = math.nan
    high: float = math.nan
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.value:.3f}" + (f" ({self.low:.3f} to {self.high:.3f})" if self.kind else "")


def mean_of_shares(values: Sequence[float]) -> Mean:
    """The mean of `values` in 0..1, one per problem; NaN without any.

    Wilson's interval where all values are 0 or 1, or all equal; else that of `effective` trials.
    """
    if not values:
        return Mean(math.nan)
    value, values = math.fsum(values) / len(values), [round(x, _DIGITS) for x in values]
    if all(x in (0, 1) for x in values) or min(values) == max(values):
        return Mean(value, *wilson(math.fsum(values), len(values)), "wilson")
    return Mean(value, *effective(values), "effective")


def mean_of_numbers(values: Sequence[float], seed: int = 0) -> Mean:
    """The mean of any `values`, one per problem, with a bootstrap interval; none where all values are equal."""
    if not values:
        return Mean(math.nan)
    value, values = math.fsum(values) / len(values), [round(x, _DIGITS) for x in values]
    if len(set(values)) < 2:
        return Mean(value)
    return Mean(value, *bootstrap(values, seed), "bootstrap")


def wilson(successes: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a proportion.

    >>> [round(x, 4) for x in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    return _score(successes / n, Z * Z / n)


def effective(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of `values` in 0..1: Wilson's for the effective number of trials.

    n values of mean m count as n / f trials, f = Σ(x − m)² / n m(1 − m), the design effect (Korn & Graubard 1998), with
    Student's quantile. 1/2 is added to both sums, for means near 0 or 1, where f is not known.

    >>> [round(x, 3) for x in effective([1.0] * 18 + [0.9, 0.8])]
    [0.845, 0.999]
    """
    n, m = len(values), math.fsum(values) / len(values)
    spread, trials = math.fsum((x - m) ** 2 for x in values), n * m * (1 - m)
    return _score(m, student(LEVEL, n - 1) ** 2 / n * (spread + 0.5) / (trials + 0.5))


def _score(m: float, k: float) -> tuple[float, float]:
    """The means µ with (m − µ)² ≤ k µ(1 − µ)."""
    centre, half = (m + k / 2) / (1 + k), math.sqrt(k * m * (1 - m) + k * k / 4) / (1 + k)
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap(values: Sequence[float], seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of `values`, not all equal; the same seed gives the same interval.

    Bias-corrected and accelerated (Efron 1987), widened for few values (Hesterberg 2015).
    """
    x = np.asarray(values, dtype=np.float64)
    generator, rows = np.random.default_rng(seed), max(1, _AT_ONCE // len(x))
    counts = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    means = np.concatenate([x[generator.integers(0, len(x), size=(count, len(x)))].mean(1) for count in counts])
    normal = NormalDist()
    # Ties count half, as means of few problems take few values; rounded, as a sum's order changes its last bit.
    apart = np.round(means - x.mean(), _DIGITS)
    below = ((apart < 0).mean() + (apart <= 0).mean()) / 2
    bias = normal.inv_cdf(min(max(float(below), 0.5 / resamples), 1 - 0.5 / resamples))
    away = x - x.mean()
    skew = float((away**3).sum() / (6 * (away**2).sum() ** 1.5))
    # Student's 95 % quantile in standard deviations of a resampled mean.
    wide = math.sqrt(len(x) / (len(x) - 1)) * student(LEVEL, len(x) - 1)
    ends = [normal.cdf(bias + (bias + z) / (1 - skew * (bias + z))) for z in (-wide, wide)]
    low, high = np.quantile(means, ends)
    return float(low), float(high)


def student(level: float, freedom: int) -> float:
    """t with P(|T| < t) = level; the distribution function is the finite sum of Abramowitz & Stegun 26.7.3 and 26.7.4.

    >>> round(student(0.95, 9), 3)
    2.262
    """
    low, high = 0.0, math.pi / 2  # of atan(t / √freedom)
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _within(angle: float, freedom: int) -> float:
    cosine = math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= (k - 1) / k * cosine**2
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total

"""Paired statistics over seeds: an exact sign-flip test, a bootstrap interval, Holm's correction, seeds needed.

A pair of runs with equal seed gives one difference d_s. If the two methods were the same but for chance, each d_s would
be as likely to be −d_s: that is the hypothesis of the test, and it needs no distribution. References: Fisher (1935) for
the test, Phipson & Smyth (2010) for its p from random draws, Holm (1979) for the correction, Hesterberg (2015) for the
widened percentiles, Guenther (1981) for the number of seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base.intervals import widened

Floats = NDArray[np.float64]

ALPHA, POWER = 0.05, 0.8
MOST_EXACT = 16  # differences; beyond, 2^n sign patterns are too many to visit
DRAWS, RESAMPLES, BLOCK = 99_999, 9_999, 10_000
MOST_SEEDS = 1000
_NORMAL = NormalDist()


def sign_flip(differences: ArrayLike, *, seed: int = 0) -> Floats:
    """Two-sided p [...] of differences [..., n]: the share of sign patterns with |Σ ± d| at least as large as |Σ d|.

    Exact up to 16 differences; beyond, (1 + hits) / (1 + draws) of 99,999 seeded draws, which is never 0.

    >>> float(sign_flip([1.0, 2.0, 3.0]))  # 2 of the 8 patterns: all plus, all minus
    0.25
    """
    d = np.asarray(differences, dtype=np.float64)
    n = d.shape[-1]
    if n <= MOST_EXACT:
        # Flipping every sign leaves |Σ| as it is, so the last sign is held and half of the patterns suffice.
        patterns = np.arange(2 ** max(n - 1, 0))[:, None] >> np.arange(n) & 1
        return _hits(d, patterns) / len(patterns)
    generator = np.random.default_rng(seed)
    hits = np.ones(d.shape[:-1])
    for start in range(0, DRAWS, BLOCK):
        hits += _hits(d, generator.integers(0, 2, (min(BLOCK, DRAWS - start), n)))
    return hits / (DRAWS + 1)


def _hits(d: Floats, patterns: NDArray[np.int64]) -> Floats:
    """How many of the patterns [P, n] (1 flips) reach the observed sum; equal sums may differ by rounding."""
    flipped = np.abs(d @ (1.0 - 2.0 * patterns).T)
    observed = np.abs(d.sum(-1)) - 1e-12 * np.abs(d).sum(-1)
    return (flipped >= observed[..., None]).sum(-1).astype(np.float64)


def holm(p: ArrayLike) -> Floats:
    """p of a family [..., m], adjusted so that p ≤ α rejects with a familywise error of at most α.

    >>> holm([0.01, 0.04, 0.03]).round(12).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p, dtype=np.float64)
    order = np.argsort(raw, axis=-1, kind="stable")
    steps = np.take_along_axis(raw, order, -1) * np.arange(raw.shape[-1], 0, -1)
    adjusted = np.empty_like(raw)
    np.put_along_axis(adjusted, order, np.minimum(np.maximum.accumulate(steps, axis=-1), 1.0), -1)
    return adjusted


def bootstrap(differences: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 95 % interval of the mean difference: percentiles of the means of resampled differences.

    The percentiles are widened as Hesterberg does, since plain ones are too narrow for few seeds. The interval does not
    depend on the order of the seeds, and swapping the pair mirrors it.
    """
    d, swapped = canonical(differences)
    generator = np.random.default_rng(seed)
    means = d[generator.integers(0, len(d), (resamples, len(d)))].mean(-1)
    tail = 100 * (1 - widened(len(d))) / 2
    ends = np.percentile(means, [tail, 100 - tail])
    # A sum that is 0 but for rounding is 0: an end there is read with care.
    low, high = np.where(np.abs(ends) <= 1e-12 * np.abs(d).max(), 0.0, ends).tolist()
    return (-high, -low) if swapped else (low, high)


def canonical(differences: Sequence[float]) -> tuple[Floats, bool]:
    """The differences in one order and orientation of all that mean the same; whether their signs were turned."""
    up = np.sort(np.asarray(differences, dtype=np.float64))
    down = -up[::-1]
    swapped = down.tolist() > up.tolist()
    return (down if swapped else up), swapped


def least_seeds(comparisons: int) -> int:
    """The fewest seeds with which any difference can be told: 2 / 2^n times the comparisons must reach α.

    >>> least_seeds(1), least_seeds(6), least_seeds(21)
    (6, 8, 10)
    """
    n = 1
    while 2.0 ** (1 - n) * comparisons > ALPHA:
        n += 1
    return n


def seeds_needed(differences: Sequence[float], comparisons: int) -> int | None:
    """How many seeds would decide with a power of 80 % if the seen mean and deviation were the true ones.

    n = ((z(1 − α/2m) + z(power)) / δ)² + z(1 − α/2m)² / 2 with δ = |mean| / deviation and m comparisons; the second
    term is Guenther's, for a deviation that is estimated. At least `least_seeds`, and one more than there are. None
    where no number below a thousand would do, or where fewer than three differences tell nothing of their deviation.
    """
    d = np.asarray(differences, dtype=np.float64)
    if len(d) < 3:
        return None
    mean, deviation = abs(d.mean()), d.std(ddof=1)
    if mean <= 1e-12 * np.abs(d).max():
        return None
    z = _NORMAL.inv_cdf(1 - ALPHA / (2 * comparisons))
    needed = ((z + _NORMAL.inv_cdf(POWER)) * deviation / mean) ** 2 + z * z / 2
    if needed > MOST_SEEDS:
        return None
    return max(math.ceil(needed), least_seeds(comparisons), len(d) + 1)

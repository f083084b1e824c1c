"""What the seeds tell apart: an exact sign-flip test, a bootstrap interval, Holm's correction, seeds needed, verdicts.

A pair of runs with equal seed gives one difference d_s. If the two methods were the same but for chance, each d_s would
be as likely to be −d_s: that is the hypothesis of the test, and it needs no distribution. References: Fisher (1935) for
the test, Phipson & Smyth (2010) for its p from random draws, Holm (1979) for the correction, Hesterberg (2015) for the
widened percentiles, Guenther (1981) for the number of seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base.intervals import widened

Floats = NDArray[np.float64]
Values = Mapping[str, Mapping[int, float]]  # of a method by its label, of a run by its seed

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


@dataclass(frozen=True)
class Pair:
    """One comparison of two methods by one number.

    Args:
        a, b: labels of the methods; every difference is a's value minus b's.
        seeds: those in which both have a value, ascending.
        differences: one per seed.
        family: comparisons that Holm corrects for.
        mean, low, high: of the differences, with their 95 % bootstrap interval; None with fewer than two seeds.
        p, adjusted: of the sign-flip test, and after Holm over the family; None with fewer than two seeds.
    """

    a: str
    b: str
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    family: int = 1
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    adjusted: float | None = None

    @property
    def above(self) -> str | None:
        """The label of the method with the higher mean where the test tells them apart, else None."""
        # Products of exact fractions: a p that is 0.05 on paper must not miss it by rounding.
        if self.adjusted is None or self.mean is None or self.adjusted > ALPHA * (1 + 1e-9):
            return None
        return self.a if self.mean > 0 else self.b

    @property
    def needed(self) -> int | None:
        """Seeds that would probably decide, where it is inconclusive and an estimate can be made."""
        return None if self.above is not None else seeds_needed(self.differences, self.family)

    @property
    def verdict(self) -> str:
        """The verdict alone."""
        if self.above is None:
            return "inconclusive" if self.p is not None else "not compared"
        return f"{self.above} above {self.b if self.above == self.a else self.a}"

    @property
    def short(self) -> str:
        """The verdict and, where there is none, what it would take."""
        return f"{self.verdict} (takes about {self.needed} seeds)" if self.needed else self.verdict

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, as a sentence."""
        if self.adjusted is None:
            return "Fewer than two seeds have a value of both methods."
        corrected = f" after correction for {self.family} comparisons" if self.family > 1 else ""
        if self.above is not None:
            return f"p = {self.adjusted:.3g}{corrected}, {len(self.seeds)} seeds."
        if not any(self.differences):
            return "Equal in every seed."
        if len(self.seeds) < least_seeds(self.family):
            return f"{too_few(len(self.seeds), self.family)} {self._estimate()}"
        return f"p = {self.adjusted:.3g}{corrected}. {self._estimate()}"

    def _estimate(self) -> str:
        if self.needed is not None:
            return f"If the difference is what it seems, about {self.needed} seeds would probably tell (estimate)."
        if len(self.seeds) < 3:
            return "Two seeds say too little of their spread to estimate how many would."
        return "The seen difference is so near 0 that no number of seeds can be named."


def too_few(seeds: int, family: int) -> str:
    """The sentence for a comparison whose seeds cannot give any verdict.

    >>> too_few(3, 1)
    '3 seeds cannot tell anything apart: their smallest possible p is 2 / 2^3 = 0.25; it takes 6.'
    """
    smallest, times = 2.0 ** (1 - seeds), f", {family} comparisons make it {min(1.0, family * 2.0 ** (1 - seeds)):.3g}"
    return (
        f"{seeds} seeds cannot tell anything apart: their smallest possible p is 2 / 2^{seeds} = {smallest:.3g}"
        f"{times if family > 1 else ''}; it takes {least_seeds(family)}."
    )


def judge(values: Values, pairs: Sequence[tuple[str, str]], *, resamples: int = RESAMPLES) -> list[Pair]:
    """A verdict for each of `pairs` (a, b) of labels from `values[label][seed]`; the pairs are the family of Holm's
    correction, those with fewer than two seeds excepted.
    """
    untested = []
    for a, b in pairs:
        seeds = tuple(sorted(values[a].keys() & values[b].keys()))
        untested.append(Pair(a, b, seeds, tuple(values[a][seed] - values[b][seed] for seed in seeds)))
    tested = [pair for pair in untested if len(pair.seeds) >= 2]
    p = [float(sign_flip(canonical(pair.differences)[0])) for pair in tested]
    results = iter(zip(p, holm(p).tolist(), strict=True))
    return [
        _tested(pair, len(tested), *next(results), resamples) if len(pair.seeds) >= 2 else pair for pair in untested
    ]


def _tested(pair: Pair, family: int, p: float, adjusted: float, resamples: int) -> Pair:
    low, high = bootstrap(pair.differences, resamples=resamples)
    # The sum of fsum is exact, so neither the order of the seeds nor that of the pair changes it.
    mean = math.fsum(pair.differences) / len(pair.differences)
    return replace(pair, family=family, mean=mean, low=low, high=high, p=p, adjusted=adjusted)

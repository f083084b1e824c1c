"""Statistics of paired runs: exact tests of difference and equivalence, intervals, verdicts.

Two runs with the same seed give one difference d_s. If two methods differ by chance only, d_s and −d_s are equally
likely: this is the hypothesis of the sign-flip test, which as a test of the mean assumes symmetric differences.
References: Fisher (1935) for the test, Phipson & Smyth (2010) for its p from random draws, Schuirmann (1987) for two
one-sided tests, Holm (1979) for the correction, Hesterberg (2015) for the widened percentiles.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base.errors import TokenPOError
from ...base.intervals import LEVEL, student
from ...base.text import number

ALPHA = 0.05
DRAWS, RESAMPLES, BLOCK = 99_999, 9_999, 10_000

Floats = NDArray[np.float64]
ROUNDING = 1e-12  # numbers that differ by less than this share of their size are equal
MOST_EXACT = 16  # differences; for more, 2^n sign patterns are too many
_NORMAL = NormalDist()


def sign_flip(differences: ArrayLike, *, seed: int = 0, above: bool = False, noise: float = 0.0) -> Floats:
    """p [...] of differences [..., n]: the share of sign patterns with |Σ ± d| at least as large as |Σ d|.

    Exact up to 16 differences; for more, (1 + hits) / (1 + draws) of 99,999 seeded draws, which is never 0.

    >>> float(sign_flip([1.0, 2.0, 3.0]))  # 2 of the 8 patterns: all plus, all minus
    0.25

    Args:
        above: one-sided, against a mean above 0: the share with Σ ± d at least Σ d.
        noise: rounding of Σ d that comes from the numbers that were subtracted, see `differences`.
    """
    d = np.asarray(differences, dtype=np.float64)
    n = d.shape[-1]
    if n <= MOST_EXACT:
        # Flipping all signs does not change |Σ|: two-sided, the last sign is fixed and half of the patterns suffice.
        patterns = np.arange(2 ** (n if above else max(n - 1, 0)))[:, None] >> np.arange(n) & 1
        return _hits(d, patterns, above, noise) / len(patterns)
    generator = np.random.default_rng(seed)
    hits = np.ones(d.shape[:-1])
    for start in range(0, DRAWS, BLOCK):
        hits += _hits(d, generator.integers(0, 2, (min(BLOCK, DRAWS - start), n)), above, noise)
    return hits / (DRAWS + 1)


def _hits(d: Floats, patterns: NDArray[np.int64], above: bool, noise: float) -> Floats:
    """Number of patterns [P, n] (1 flips) that reach the observed sum; equal sums may differ by rounding."""
    flipped, observed = d @ (1.0 - 2.0 * patterns).T, d.sum(-1)
    if not above:
        flipped, observed = np.abs(flipped), np.abs(observed)
    least = observed - ROUNDING * np.abs(d).sum(-1) - noise
    return (flipped >= least[..., None]).sum(-1).astype(np.float64)


def equivalence(differences: ArrayLike, margin: float, noise: float = 0.0) -> float:
    """p of "the mean differs by `margin` or more": the larger of the two one-sided sign-flip tests against ±margin.

    At most 0.05 if the 90 % interval of the means that these tests do not reject lies within ±margin.

    >>> equivalence([0.0, 0.1, -0.1, 0.0, 0.0], 0.2)  # 1 of 32 patterns each
    0.03125
    """
    d = np.sort(np.asarray(differences, dtype=np.float64))
    return max(float(sign_flip(x, above=True, noise=noise)) for x in (margin + d, margin - d[::-1]))


def holm(p: ArrayLike) -> Floats:
    """p of a family [m], adjusted so that p ≤ α rejects with a familywise error of at most α.

    >>> holm([0.01, 0.04, 0.03]).round(12).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p, dtype=np.float64)
    order, adjusted = np.argsort(raw, kind="stable"), np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1)), 1.0)
    return adjusted


def bootstrap(differences: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 95 % interval of the mean difference: percentiles of resampled means, widened as Hesterberg does.

    It does not depend on the order of the seeds, and swapping the pair mirrors it.
    """
    d, swapped = canonical(differences)
    generator = np.random.default_rng(seed)
    means = d[generator.integers(0, len(d), (resamples, len(d)))].mean(-1)
    # The level at which a percentile interval of n normal numbers is as wide as Student's at 95 %.
    n = len(d)
    level = 2 * _NORMAL.cdf(math.sqrt(n / (n - 1)) * student(LEVEL, n - 1)) - 1
    tail = 100 * (1 - level) / 2
    ends = np.percentile(means, [tail, 100 - tail])
    # An end that is 0 up to rounding becomes 0, because readers look for it.
    low, high = np.where(np.abs(ends) <= 1e-12 * np.abs(d).max(), 0.0, ends).tolist()
    return (-high, -low) if swapped else (low, high)


def canonical(differences: Sequence[float]) -> tuple[Floats, bool]:
    """(differences sorted, with the same signs for a pair and the swapped pair; whether signs were flipped)."""
    up = np.sort(np.asarray(differences, dtype=np.float64))
    down = -up[::-1]
    swapped = down.tolist() > up.tolist()
    return (down if swapped else up), swapped


def least_seeds(comparisons: int) -> int:
    """The smallest number of seeds n that can give a verdict: 2 / 2^n times the comparisons must be at most α.

    >>> least_seeds(1), least_seeds(6), least_seeds(21)
    (6, 8, 10)
    """
    return next(n for n in itertools.count(1) if 2.0 ** (1 - n) * comparisons <= ALPHA)


def differences(a: Sequence[float], b: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """(a − b by seed, 0 within rounding; the largest rounding of their sum, which has the size of a, not of a − b)."""
    rounding = [ROUNDING * max(abs(x), abs(y)) for x, y in zip(a, b, strict=True)]
    values = (x - y if abs(x - y) > noise else 0.0 for x, y, noise in zip(a, b, rounding, strict=True))
    return tuple(values), sum(rounding)


Values = Mapping[str, Mapping[int, float]]  # label of a method -> seed -> number
# p is a product of exact fractions: one that is 0.05 on paper must not miss it by rounding.
REACHED = ALPHA * (1 + 1e-9)


@dataclass(frozen=True)
class Pair:
    """One comparison of two methods by one number.

    Args:
        a, b: labels of the methods; every difference is a's value minus b's.
        seeds: the seeds for which both have a value, ascending.
        differences: one per seed.
        family: number of comparisons that Holm corrects for.
        mean, low, high: mean difference with its 95 % bootstrap interval; None with fewer than two seeds.
        p, adjusted: p of the test, raw and after Holm over the family; None with fewer than two seeds.
        margin: the smallest difference that matters; None if not given.
        p_equal, equal_adjusted: p of the two one-sided tests against the margin, raw and after Holm; None without one.
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
    margin: float | None = None
    p_equal: float | None = None
    equal_adjusted: float | None = None

    @property
    def larger(self) -> str | None:
        """The label of the method with the higher numbers if the difference is significant, else None."""
        if self.adjusted is None or self.adjusted > REACHED:
            return None
        return self.a if (self.mean or 0.0) > 0 else self.b

    @property
    def equivalent(self) -> bool:
        """Whether a difference of the margin or more is ruled out."""
        return self.equal_adjusted is not None and self.equal_adjusted <= REACHED

    @property
    def decided(self) -> bool:
        return self.larger is not None or self.equivalent

    @property
    def verdict(self) -> str:
        """One of "LABEL larger than LABEL", "alike within ±M", "undecided", "not compared"."""
        if self.adjusted is None:
            return "not compared"
        if self.larger is None:
            return f"alike within ±{number(self.margin)}" if self.equivalent else "undecided"
        found = f"{self.larger} larger than {self.b if self.larger == self.a else self.a}"
        return f"{found}, by less than {number(self.margin)}" if self.equivalent else found

    @property
    def reason(self) -> str:
        if self.adjusted is None:
            return "Fewer than two seeds have a value of both methods."
        seeds = len(self.seeds)
        if not self.decided and not any(self.differences):
            return "Equal in every seed."
        corrected = f" after correction for {self.family} comparisons" if self.family > 1 else ""
        sentences = [f"p = {self.adjusted:.3g}{corrected}{f', {seeds} seeds' if self.larger is not None else ''}."]
        if not self.decided and seeds < least_seeds(self.family):
            sentences = [too_few(seeds, self.family)]
        if self.equivalent:
            equal = f"p = {self.equal_adjusted:.3g}{corrected}"
            sentences.append(f"A difference of {number(self.margin)} or more: {equal}.")
        return " ".join(sentences)

    def as_json(self) -> dict[str, Any]:
        return {
            "a": self.a, "b": self.b, "seeds": self.seeds, "differences": self.differences,
            "mean": self.mean, "low": self.low, "high": self.high, "p": self.p, "p_adjusted": self.adjusted,
            "margin": self.margin, "p_equivalence": self.p_equal, "p_equivalence_adjusted": self.equal_adjusted,
            "comparisons": self.family, "verdict": self.verdict, "reason": self.reason,
        }  # fmt: skip


def too_few(seeds: int, family: int) -> str:
    """The sentence for a comparison whose seeds cannot give any verdict.

    >>> too_few(3, 1)
    '3 seeds cannot tell anything apart: their smallest possible p is 2 / 2^3 = 0.25; train at least 6 (--seeds 6).'
    """
    smallest = 2.0 ** (1 - seeds)
    times = f", {family} comparisons make it {min(1.0, family * smallest):.3g}" if family > 1 else ""
    return (
        f"{seeds} seeds cannot tell anything apart: their smallest possible p is 2 / 2^{seeds} = {smallest:.3g}"
        f"{times}; train at least {least_seeds(family)} (--seeds {least_seeds(family)})."
    )


def judge(
    values: Values, pairs: Sequence[tuple[str, str]], *, margin: float | None = None, resamples: int = RESAMPLES
) -> list[Pair]:
    """A verdict for each of `pairs` (a, b) of labels, from `values[label][seed]`.

    Holm's correction is over all pairs with at least two seeds, separately for differences and equivalences. `margin`
    is the smallest difference that matters.

    Raises:
        TokenPOError: a value is NaN or infinite.
    """
    for label in dict.fromkeys(label for pair in pairs for label in pair):
        for seed, value in values[label].items():
            if not math.isfinite(value):
                raise TokenPOError(
                    f"{label} seed {seed}: the value is {value}, which cannot be compared: give a finite number, or "
                    "leave this seed out"
                )
    judged = []
    for a, b in pairs:
        seeds = tuple(sorted(values[a].keys() & values[b].keys()))
        d, noise = differences([values[a][seed] for seed in seeds], [values[b][seed] for seed in seeds])
        pair = Pair(a, b, seeds, d, margin=margin)
        if len(seeds) >= 2:
            low, high = bootstrap(d, resamples=resamples)
            mean = math.fsum(d) / len(d)  # an exact sum, which does not depend on the order
            p = float(sign_flip(canonical(d)[0], noise=noise))
            p_equal = None if margin is None else equivalence(d, margin, noise)
            pair = replace(pair, mean=mean, low=low, high=high, p=p, p_equal=p_equal)
        judged.append(pair)
    tested = [i for i, pair in enumerate(judged) if pair.p is not None]
    adjusted = holm([judged[i].p for i in tested]).tolist()
    equal = [None] * len(tested) if margin is None else holm([judged[i].p_equal for i in tested]).tolist()
    for i, p, q in zip(tested, adjusted, equal, strict=True):
        judged[i] = replace(judged[i], family=len(tested), adjusted=p, equal_adjusted=q)
    return judged

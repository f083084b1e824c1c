"""What the seeds tell apart, in words: 'A above B', 'B above A' or 'inconclusive', and how many seeds would decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from . import paired
from .paired import ALPHA, least_seeds

Values = Mapping[str, Mapping[int, float]]


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
        return None if self.above is not None else paired.seeds_needed(self.differences, self.family)

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


def judge(values: Values, pairs: Sequence[tuple[str, str]], *, resamples: int = paired.RESAMPLES) -> list[Pair]:
    """A verdict for each of `pairs` (a, b) of labels from `values[label][seed]`; the pairs are the family of Holm's
    correction, those with fewer than two seeds excepted.
    """
    untested = []
    for a, b in pairs:
        seeds = tuple(sorted(values[a].keys() & values[b].keys()))
        untested.append(Pair(a, b, seeds, tuple(values[a][seed] - values[b][seed] for seed in seeds)))
    tested = [pair for pair in untested if len(pair.seeds) >= 2]
    p = [float(paired.sign_flip(paired.canonical(pair.differences)[0])) for pair in tested]
    results = iter(zip(p, paired.holm(p).tolist(), strict=True))
    return [
        _tested(pair, len(tested), *next(results), resamples) if len(pair.seeds) >= 2 else pair for pair in untested
    ]


def _tested(pair: Pair, family: int, p: float, adjusted: float, resamples: int) -> Pair:
    low, high = paired.bootstrap(pair.differences, resamples=resamples)
    # The sum of fsum is exact, so neither the order of the seeds nor that of the pair changes it.
    mean = math.fsum(pair.differences) / len(pair.differences)
    return replace(pair, family=family, mean=mean, low=low, high=high, p=p, adjusted=adjusted)

"""Verdicts on paired runs: above, equivalent or inconclusive, with the reason."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.errors import TokenPOError
from ...base.text import number
from .paired import ALPHA, RESAMPLES, Differences, bootstrap, equivalence, holm, least_seeds, seeds_needed

Values = Mapping[str, Mapping[int, float]]  # label of a method -> seed -> number
# p is a product of exact fractions: one that is 0.05 on paper must not miss it by rounding.
REACHED = ALPHA * (1 + 1e-9)


@dataclass(frozen=True)
class Pair:
    """One comparison of two methods by one number.

    Args:
        a, b: labels of the methods; every difference is a's value minus b's.
        seeds: the seeds for which both have a value, ascending.
        differences: one per seed; unknown if a run never got there.
        family: number of comparisons that Holm corrects for.
        mean, low, high: mean of the known differences with its 95 % bootstrap interval; None with fewer than two.
        p, adjusted: p of the test, raw and after Holm over the family; None with fewer than two seeds.
        margin: the smallest difference that matters; None if not given.
        p_equal, equal_adjusted: p of the two one-sided tests against the margin, raw and after Holm; None without a
            margin, or if a difference is unknown.
    """

    a: str
    b: str
    seeds: tuple[int, ...]
    differences: Differences
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
    def above(self) -> str | None:
        """The label of the method with the higher numbers if the difference is significant, else None."""
        if self.adjusted is None or self.adjusted > REACHED:
            return None
        return self.a if self.differences.direction > 0 else self.b

    @property
    def equivalent(self) -> bool:
        """Whether a difference of the margin or more is ruled out."""
        return self.equal_adjusted is not None and self.equal_adjusted <= REACHED

    @property
    def decided(self) -> bool:
        return self.above is not None or self.equivalent

    @property
    def needed(self) -> int | None:
        """For an inconclusive pair the estimated number of seeds that would decide; None without an estimate."""
        if self.decided or self.differences.bounded:
            return None
        return seeds_needed(self.differences.known, self.family)

    @property
    def verdict(self) -> str:
        """One of "LABEL above LABEL", "equivalent within ±M", "inconclusive", "not compared"."""
        if self.adjusted is None:
            return "not compared"
        if self.above is None:
            return f"equivalent within ±{number(self.margin)}" if self.equivalent else "inconclusive"
        above = f"{self.above} above {self.b if self.above == self.a else self.a}"
        return f"{above}, by less than {number(self.margin)}" if self.equivalent else above

    @property
    def short(self) -> str:
        """The verdict, with the number of seeds that would decide."""
        return self.verdict + (f" (takes about {self.needed} seeds)" if self.needed else "")

    @property
    def reason(self) -> str:
        """The reason for the verdict, in sentences."""
        if self.adjusted is None:
            return "Fewer than two seeds have a value of both methods."
        d, seeds = self.differences, len(self.seeds)
        if not self.decided and not d.bounded and not any(d.known):
            return "Equal in every seed."
        corrected = f" after correction for {self.family} comparisons" if self.family > 1 else ""
        sentences = [f"p = {self.adjusted:.3g}{corrected}{f', {seeds} seeds' if self.above is not None else ''}."]
        if not self.decided and seeds < least_seeds(self.family):
            sentences = [too_few(seeds, self.family)]
        if d.bounded:
            sentences.append(
                f"Runs never got there, so only the order of a pair counts: {self.a} was later in {d.ahead}, {self.b} "
                f"in {d.behind}, {len(d.values) - d.ahead - d.behind} undecided."
            )
        if self.equivalent:
            equal = f"p = {self.equal_adjusted:.3g}{corrected}"
            sentences.append(f"A difference of {number(self.margin)} or more: {equal}.")
        if not self.decided and not d.bounded:
            few = "Two seeds say too little of their spread to estimate how many would."
            near = "The difference is so near 0 that no number of seeds can be named."
            estimate = f"about {self.needed} seeds would probably tell (estimate)"
            enough = f"If the difference is what it seems, {estimate}."
            sentences.append(enough if self.needed is not None else few if seeds < 3 else near)
        return " ".join(sentences)

    def as_json(self) -> dict[str, Any]:
        """The pair's entry in compare.json."""
        d = self.differences
        return {
            "a": self.a, "b": self.b, "seeds": self.seeds, "differences": d.values, "above": d.ahead, "below": d.behind,
            "mean": self.mean, "low": self.low, "high": self.high, "p": self.p, "p_adjusted": self.adjusted,
            "margin": self.margin, "p_equivalence": self.p_equal, "p_equivalence_adjusted": self.equal_adjusted,
            "comparisons": self.family, "verdict": self.verdict, "seeds_needed": self.needed, "reason": self.reason,
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
    values: Values, pairs: Sequence[tuple[str, str]], *, late: Mapping[str, Collection[int]] | None = None,
    margin: float | None = None, resamples: int = RESAMPLES,
) -> list[Pair]:  # fmt: skip
    """A verdict for each of `pairs` (a, b) of labels, from `values[label][seed]`.

    Holm's correction is over all pairs with at least two seeds, separately for differences and equivalences.

    Args:
        late: label -> seeds whose value is only a lower bound, because the run never got there.
        margin: the smallest difference that matters.

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
    late, judged = late or {}, []
    for a, b in pairs:
        seeds = tuple(sorted(values[a].keys() & values[b].keys()))
        bounds = [(seed in late.get(a, ()), seed in late.get(b, ())) for seed in seeds]
        d = Differences.of([values[a][seed] for seed in seeds], [values[b][seed] for seed in seeds], bounds)
        pair = Pair(a, b, seeds, d, margin=margin)
        if len(seeds) >= 2:
            low, high = bootstrap(d.known, resamples=resamples) if len(d.known) > 1 else (None, None)
            p_equal = None if margin is None or d.bounded else equivalence(d.known, margin, d.noise)
            pair = replace(pair, mean=d.mean, low=low, high=high, p=d.p(), p_equal=p_equal)
        judged.append(pair)
    tested = [i for i, pair in enumerate(judged) if pair.p is not None]
    adjusted = holm([judged[i].p for i in tested]).tolist()
    # A pair whose equivalence cannot be tested counts as not equivalent.
    equal = holm([1.0 if judged[i].p_equal is None else judged[i].p_equal for i in tested]).tolist()
    for i, p, q in zip(tested, adjusted, equal, strict=True):
        q = None if judged[i].p_equal is None else q
        judged[i] = replace(judged[i], family=len(tested), adjusted=p, equal_adjusted=q)
    return judged

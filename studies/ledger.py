"""Claims as paired tests, and the tables of a ledger: `claims.py` and `bed.py` judge their numbers by it.

A claim is one test per task. The tests of one paper are one family, corrected by Holm; so a paper with many claims
does not make those of another harder to show. "Refuted" (the reverse of the claim is significant) and "smaller than m"
are tested like the claim itself; a claim for which no test is significant is inconclusive.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layout import cell, table

from tokenpo.evidence.compare import paired
from tokenpo.evidence.compare.paired import Differences
from tokenpo.evidence.compare.verdict import REACHED

# Of each task: `values` by metric and method, one number a seed; `never`, by metric and method the seeds whose run did
# not get there, so that its number is a lower bound; `threshold`, what got there means.
Tasks = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Claim:
    """`method` lies above (or below) `other` in `metric`, or above (below) so many times it.

    Args:
        factor: compared by the logarithm of the ratio, in place of the difference.
        margin: the least difference that matters, registered before the runs; without it nothing is called smaller.
    """

    paper: str
    words: str
    method: str
    other: str
    metric: str
    above: bool
    factor: float | None = None
    margin: float | None = None

    @property
    def quantity(self) -> str:
        """What is compared, as a heading of its numbers."""
        return f"{self.metric}, {self.method} {'−' if self.factor is None else '/'} {self.other}"


@dataclass(frozen=True)
class Looks:
    """The numbers of seeds after which verdicts are sought, and each one's share of the 5 % error."""

    seeds: tuple[int, ...]
    shares: tuple[float, ...]

    def taken(self, n: int) -> tuple[int, ...]:
        """Those that n seeds allow."""
        return tuple(seeds for seeds in self.seeds if seeds <= n)


@dataclass(frozen=True)
class Tested:
    """One claim on one task after the looks that were taken, before the correction; `differences` are the last's.

    Args:
        p, p_equal: over the looks; 1 without any, and where equivalence cannot be tested.
        direction: of the look that `p` is from.
    """

    claim: Claim
    task: str
    looks: Looks
    differences: Differences
    p: float
    p_equal: float
    direction: int


@dataclass(frozen=True)
class Judged:
    """With the p-values after Holm over the `family` tests of the paper."""

    test: Tested
    adjusted: float
    equal: float
    family: int

    @property
    def kind(self) -> str:
        """One of "shown", "refuted", "smaller", "inconclusive", "not reached"."""
        if not self.test.differences.values:
            return "not reached"
        if self.adjusted <= REACHED:
            return "shown" if (self.test.direction > 0) == self.test.claim.above else "refuted"
        return "smaller" if self.equal <= REACHED else "inconclusive"

    @property
    def decided(self) -> bool:
        """Whether the claim is shown, refuted, or its difference shown to be small."""
        return self.kind not in ("not reached", "inconclusive")

    @property
    def verdict(self) -> str:
        """As it stands in the table."""
        kind, test = self.kind, self.test
        smaller = f"smaller than {test.claim.margin:g}" if self.equal <= REACHED else ""
        if kind == "not reached":
            return f"look 1 of {len(test.looks.seeds)} not reached"
        if kind == "smaller":
            return f"**shown to be {smaller}**"
        if kind != "inconclusive":
            return f"**{kind}**" + (f", {smaller}" if smaller else "")
        d = test.differences
        needed = None if d.bounded or not any(d.known) else paired.seeds_needed(d.known, self.family)
        return f"inconclusive (takes about {needed} seeds)" if needed else "inconclusive"

    @property
    def mean(self) -> str:
        """The mean difference or ratio, empty where no pair has one."""
        return "" if self.test.differences.mean is None else _told(self.test.differences.mean, self.test.claim.factor)

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        claim, d = self.test.claim, self.test.differences
        mean, ends = "", ""
        if self.mean:
            mean = self.mean + (f" ({len(d.known)} of {len(d.values)} pairs)" if d.bounded else "")
            ends = " to ".join(_told(x, claim.factor) for x in paired.bootstrap(d.known)) if len(d.known) > 1 else ""
        p = f"{self.adjusted:.3f}" if d.values else ""
        front = (claim.paper, claim.words, self.test.task, claim.quantity, mean, ends, p)
        return (*map(cell, front), self.verdict)


HEAD = ("paper", "claim", "task", "difference or ratio", "mean", "95 % interval", "p, Holm", "verdict")


def _told(x: float, factor: float | None) -> str:
    """A difference with its sign; of log(a / f b) the ratio a / b."""
    return f"{x:+.3g}" if factor is None else f"{factor * math.exp(x):.3g}"


def judge(claims: Sequence[Claim], tasks: Tasks, looks: Looks) -> list[Judged]:
    """All claims on all tasks that measured both methods; each paper's tests are one family."""
    tests = [
        _tested(claim, task, found, looks) for claim in claims for task, found in tasks.items() if _has(claim, found)
    ]
    judged: dict[int, Judged] = {}
    for paper in dict.fromkeys(test.claim.paper for test in tests):
        of = [i for i, test in enumerate(tests) if test.claim.paper == paper]
        adjusted = paired.holm([tests[i].p for i in of]).tolist()
        equal = paired.holm([tests[i].p_equal for i in of]).tolist()
        for i, p, q in zip(of, adjusted, equal, strict=True):
            judged[i] = Judged(tests[i], p, q, len(of))
    return [judged[i] for i in range(len(tests))]


def _has(claim: Claim, found: Mapping[str, Any]) -> bool:
    return {claim.method, claim.other} <= found["values"].get(claim.metric, {}).keys()


def over_looks(p: Sequence[float], shares: Sequence[float]) -> float:
    """p over several looks at data that grow: the smallest p_k / share_k of the looks that were taken.

    The shares of the error, which sum to 1, are fixed before the first look (weighted Bonferroni: valid for any test
    and any dependence of the looks); the result can be corrected further by `holm`.

    >>> over_looks([0.004, 0.002], [0.1, 0.2, 0.7])  # 0.04 at the first look, 0.01 at the second; the third is to come
    0.01
    """
    return min([1.0, *(x / share for x, share in zip(p, shares, strict=False))])


def _tested(claim: Claim, task: str, found: Mapping[str, Any], looks: Looks) -> Tested:
    seeds = min(len(found["values"][claim.metric][method]) for method in (claim.method, claim.other))
    taken = [_differences(claim, found, n) for n in looks.taken(seeds)]
    if not taken:
        return Tested(claim, task, looks, Differences((), 0, 0), 1.0, 1.0, 0)
    p = [d.p() for d in taken]
    equal = [1.0 if claim.margin is None or d.bounded else paired.equivalence(d.known, claim.margin) for d in taken]
    _, decided = min((x / share, i) for i, (x, share) in enumerate(zip(p, looks.shares, strict=False)))
    return Tested(
        claim, task, looks, taken[-1],
        over_looks(p, looks.shares), over_looks(equal, looks.shares), taken[decided].direction,
    )  # fmt: skip


def _differences(claim: Claim, found: Mapping[str, Any], n: int) -> Differences:
    values, never = found["values"][claim.metric], found["never"].get(claim.metric, {})
    late = [(seed in never.get(claim.method, ()), seed in never.get(claim.other, ())) for seed in range(n)]
    return Differences.of(values[claim.method][:n], values[claim.other][:n], late, claim.factor)


def rows(judged: Sequence[Judged]) -> str:
    """The table of a ledger."""
    return table(HEAD, [item.cells() for item in judged])


def by_claim(judged: Sequence[Judged]) -> str:
    """A line for every claim: mean and verdict on each task."""
    tasks = list(dict.fromkeys(item.test.task for item in judged))
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for item in judged:
        claim, verdict = item.test.claim, item.verdict.partition(" (takes")[0]
        lines.setdefault((claim.paper, claim.words), {})[item.test.task] = f"{item.mean}: {verdict}"
    told = [(*map(cell, front), *(on.get(task, "") for task in tasks)) for front, on in lines.items()]
    return table(("paper", "claim", *tasks), told)


def summary(judged: Sequence[Judged]) -> str:
    """How many verdicts of each kind."""
    kinds = Counter(item.kind for item in judged)
    words = {
        "shown": "{} shown", "refuted": "{} refuted",
        "smaller": "{} shown to be smaller than the margin", "inconclusive": "{} inconclusive",
        "not reached": "{} not yet judged",
    }  # fmt: skip
    told = [text.format(kinds[kind]) for kind, text in words.items() if kinds[kind] or kind == "shown"]
    return f"Of {len(judged)} tests: {', '.join(told)}."


def families(judged: Sequence[Judged]) -> str:
    """How many tests Holm corrects for, by paper."""
    return ", ".join(f"{paper} {count}" for paper, count in Counter(item.test.claim.paper for item in judged).items())


def means(task: str, found: Mapping[str, Any], shown: Sequence[str]) -> str:
    """The means of all methods on one task."""
    told = table(
        ("method", "seeds", *shown), [tuple(_means(method, found, shown)) for method in found["values"][shown[0]]]
    )
    return f"**{task}**. The threshold of `train-steps` is {found['threshold']}.\n\n{told}"


def _means(method: str, found: Mapping[str, Any], shown: Sequence[str]) -> Iterator[str]:
    yield f"`{method}`"
    yield str(len(found["values"][shown[0]][method]))
    for metric in shown:
        numbers = [x for x in found["values"].get(metric, {}).get(method, []) if x is not None]
        never = len(found["never"].get(metric, {}).get(method, []))
        mean = f"{statistics.fmean(numbers):.3g}" if numbers else ""
        yield f"≥ {mean} ({never} never)" if never else mean

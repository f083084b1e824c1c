"""The predictions of law.toml against the numbers."""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy import stats

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import law  # noqa: E402

from tokenpo.evidence.compare import paired  # noqa: E402

LEVEL = 0.05
LOOKS = 4
Made = Mapping[law.Key, Mapping[str, Any]]


@dataclass(frozen=True)
class Test:
    """One prediction on one task and base: differences by seed, and p-values before Holm's correction.

    Args:
        p: of "no difference"; None where only one side is asked for.
        alike: of "differs by the margin or more"; of "worse by the margin or more" where `expected` allows larger.
    """

    name: str
    task: str
    base: str
    pair: str
    expected: str
    differences: tuple[float, ...]
    p: float | None
    alike: float

    @property
    def mean(self) -> float:
        return statistics.fmean(self.differences)

    def verdict(self, margin: float) -> str:
        """ "alike", "no worse", "larger", "smaller" or "undecided", from corrected p-values."""
        if self.alike <= LEVEL:
            return "no worse" if self.p is None else "alike"
        if self.p is not None and self.p <= LEVEL and abs(self.mean) >= margin:
            return "larger" if self.mean > 0 else "smaller"
        return "undecided"


def area(made: Made, key: law.Key | None) -> float | None:
    run = made.get(key) if key else None
    return run["values"]["train-area"] if run else None


def side(plan: Mapping[str, Any], made: Made, arm: str, task: str, base: str, method: str) -> law.Key | None:
    """The setting of one side of a comparison, without its seed; None where the study has none."""
    for block in plan["block"]:
        here = task in block["tasks"] and base in block["bases"] and method in block["methods"]
        if here and arm in block["arms"] and block["seeds"][0] == 0:
            return next(
                law.of_block(plan, made, {**block, "arms": {arm: block["arms"][arm]}}, task, base, method, 0), None
            )
    return None


def paired_areas(made: Made, one: law.Key | None, other: law.Key | None, seeds: int) -> tuple[float, ...] | None:
    """one - other by seed; None before all are made."""
    if one is None or other is None:
        return None
    pairs = [(area(made, one._replace(seed=s)), area(made, other._replace(seed=s))) for s in range(seeds)]
    return None if any(None in pair for pair in pairs) else tuple(a - b for a, b in pairs)


def raw(plan: Mapping[str, Any], made: Made) -> Iterator[Test]:
    """Every test whose runs are made, without correction."""
    margin, seeds = plan["margin"], 15
    places = dict.fromkeys(
        (task, base) for block in plan["block"] for task in block["tasks"] for base in block["bases"]
    )
    for prediction in plan["prediction"]:
        arms = prediction["arm"], prediction.get("other_arm", prediction["arm"])
        for task, base in places:
            other = side(plan, made, arms[1], task, base, prediction["other"])
            for method in prediction["methods"]:
                d = paired_areas(made, side(plan, made, arms[0], task, base, method), other, seeds)
                if d is None:
                    continue
                pair = f"{method} - {prediction['other']}" if arms[0] == arms[1] else f"{method}, {arms[0]} - {arms[1]}"
                front = prediction["name"], task, base, pair, prediction["expected"], d
                if prediction["expected"] == "alike or larger":
                    yield Test(*front, None, float(paired.sign_flip([margin + x for x in d], above=True)))
                else:
                    yield Test(*front, float(paired.sign_flip(paired.canonical(d)[0])), paired.equivalence(d, margin))
    yield from start_rates(plan, made)


def start_rates(plan: Mapping[str, Any], made: Made) -> Iterator[Test]:
    """P2 and its contrast: a difference for each pair of a task and a method."""
    block, asked = law.named(plan, "rates"), plan["start_rates"]
    pairs = [(task, method) for task in block["tasks"] for method in block["methods"]]
    best = {pair: law.tuned(plan, made, *pair) for pair in pairs}
    if None in best.values():
        return

    def less_best(arm: str, lr: float) -> tuple[float, ...] | None:
        found = [
            (
                law.height(plan, made, law.Key(task, "first", method, arm, lr, 0)),
                law.height(plan, made, best[task, method]),
            )
            for task, method in pairs
        ]
        return None if any(None in x for x in found) else tuple(a - b for a, b in found)

    for lr in block["arms"]["held"]:
        if d := less_best("held", lr):
            p = float(paired.sign_flip([plan["margin"] + x for x in d], above=True))
            yield Test("P2", "all", "first", f"held from {lr:g} - best fixed", asked["expected"], d, None, p)
    if d := less_best("fixed", asked["contrast_rate"]):
        p = float(paired.sign_flip([-asked["contrast_margin"] - x for x in d], above=True))
        yield Test(
            "P2, contrast", "all", "first", f"fixed at {asked['contrast_rate']:g} - best fixed", "worse", d, None, p
        )


def looks(plan: Mapping[str, Any], made: Made) -> int:
    """How many looks have all their runs, earlier looks' included."""
    whole = (all(key in made for key in law.wanted(plan, made, look)) for look in range(1, LOOKS + 1))
    return sum(itertools.takewhile(bool, whole))


def judged(plan: Mapping[str, Any], made: Made) -> list[Test]:
    """The tests of the looks that have all their runs, p-values corrected within a look and for the number of looks."""
    look_of = {asked["name"]: asked["look"] for asked in (*plan["prediction"], plan["start_rates"])}
    tests = [*raw(plan, made)]
    return [
        replace(test, p=None if test.p is None else min(1.0, LOOKS * test.p), alike=min(1.0, LOOKS * test.alike))
        for look in range(1, looks(plan, made) + 1)
        for test in corrected([test for test in tests if look_of[test.name.partition(",")[0]][test.task] == look])
    ]


def higher(plan: Mapping[str, Any], made: Made, asked: Mapping[str, Any], more: Made) -> list[Test]:
    """The tests of higher.toml, whose runs are `more`, beside DAPO's tuned runs; none before all are made."""
    prediction, tests = asked["prediction"][0], []
    for key in law.wanted(asked, more):
        if key.seed == 0:
            tuned = side(plan, made, "tuned", key.task, key.base, key.method)
            runs = [(area(more, key._replace(seed=s)), area(made, tuned and tuned._replace(seed=s))) for s in range(15)]
            if any(None in pair for pair in runs):
                return []
            d = tuple(a - b for a, b in runs)
            p = float(paired.sign_flip([asked["margin"] + x for x in d], above=True))
            pair = f"{key.method}, held at {asked['kl_target']:g} - tuned"
            tests.append(Test(prediction["name"], key.task, key.base, pair, prediction["expected"], d, None, p))
    return corrected(tests)


def corrected(tests: list[Test]) -> list[Test]:
    """The tests with the p-values of Holm's correction over all of them."""
    flat = [
        (i, name, p)
        for i, test in enumerate(tests)
        for name in ("p", "alike")
        if (p := getattr(test, name)) is not None
    ]
    if flat:
        for (i, name, _), p in zip(flat, paired.holm([p for *_, p in flat]).tolist(), strict=True):
            tests[i] = replace(tests[i], **{name: p})
    return tests


def above(differences: Sequence[float], margin: float) -> float:
    """p of "the mean is -margin or less", one-sided paired t-test."""
    moved = [x + margin for x in differences]
    spread = statistics.stdev(moved) / math.sqrt(len(moved))
    if spread == 0:
        return float(moved[0] <= 0)
    return float(stats.t.sf(statistics.fmean(moved) / spread, len(moved) - 1))


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """95 %, of the mean, by t."""
    mean, n = statistics.fmean(differences), len(differences)
    half = float(stats.t.ppf(0.975, n - 1)) * statistics.stdev(differences) / math.sqrt(n)
    return mean - half, mean + half

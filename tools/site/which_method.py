"""Writes docs/which_method.md from docs/which_method.toml: answers, and folded behind each the numbers that it rests
on, of exact worlds and checkpoints, or verdicts of the bed and of both parts of the study on a GPU.

A number that no longer says what its sentence does is an error that names both.

python tools/site/which_method.py [--check]
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import card_page
import kl_law
from layout import write

from tokenpo.base.text import number
from tokenpo.lab import gradients
from tokenpo.lab.exact import study
from tokenpo.lab.exact.study import Number
from tokenpo.lab.exact.table import CATALOGUE
from tokenpo.lab.exact.worlds import WORLDS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT / "studies"), str(ROOT / "studies" / "2026-11-23-bed")]

import bed  # noqa: E402
from ledger import Judged  # noqa: E402

PAGE, SOURCE = DOCS / "which_method.md", DOCS / "which_method.toml"
HEAD = "<!-- Written by tools/site/which_method.py from docs/which_method.toml, its numbers. -->\n\n"
FAR = 2.0  # standard errors that a difference must have
# FILE: METHOD WORLD MEASURE OPERATOR METHOD-OR-NUMBER
FORM = re.compile(r"(?:(\w+): )?(\S+) (\S+) (\S+)(?: ([<>=≥?]) (\S+))?")
AT = {
    "useful": "useful progress", "against": "useful progress less DAPO's, on the same rollouts",
    "after/useful": "useful progress after 8 minibatches", "after/cosine": "cosine after 8 minibatches",
}  # fmt: skip
WORDS = {">": "more than", "<": "less than", "=": "as much as"}
VERDICTS = {"=": "alike", "<": "smaller", ">": "larger", "≥": "no worse", "?": "undecided"}
CARD = {
    "held": "KL held", "held_high": "KL held, high start rate", "held_small": "a third of that KL",
    "fixed_high": "one high learning rate", "fixed_mid": "the best fixed rate",
}  # fmt: skip
OTHERS = {
    "best_fixed": "the best fixed rate", "tuned": "its tuned rate and clip", "held": "the KL held",
    "fixed_mid": "the rate that other seeds chose",
}  # fmt: skip
NAMES = {
    "no_clip": "`dapo` without a clip",
    "dapo_wide": "`dapo` with a clip twice as wide",
    "lower_only": "`dapo` with the lower side of its clip alone",
    "upper_only": "`dapo` with the upper side of its clip alone",
}  # arms, in the place of a method
LAW = {
    "P1": "KL held",
    "P1b": "KL held",
    "P1c": "one fixed rate",
    "P1d": "each tuned",
    "P3": "KL held",
    "P5": "three times that KL held",
}
ON_THE_CARD = (*card_page.PARTS, *card_page.OTHERS)
BED = {"train-area": "mean accuracy in training", "mean:entropy": "mean entropy in training"}


class Stale(ValueError):
    """A sentence that its number does not bear out."""


@dataclass(frozen=True)
class Evidence:
    """A number and what it is held against.

    Args:
        file: exact.json, exact_FILE.json, "bed", "law", or a part of the study on a GPU: "longer", "card", "clips",
            "habits".
        world: of the file; "all" is each of the twelve, "median" their median; "-" at a checkpoint; a task of the bed;
            an arm of the study on a GPU; PREDICTION,TASK,BASE of the law.
        operator: < or >, by two standard errors in every world that is meant, or =: within them, or infinite. On the
            bed a verdict of the claim about both methods; = that the difference is smaller than its margin.
        other: a method of the same file, a number, or inf; on a GPU also an arm of the same method.
    """

    file: str
    method: str
    world: str
    measure: str
    operator: str
    other: str

    @staticmethod
    def of(text: str) -> Evidence:
        match = FORM.fullmatch(text)
        if match is None:
            raise Stale(f"{text!r} is not of the form FILE: METHOD WORLD MEASURE OPERATOR OTHER")
        return Evidence(*(part or "" for part in match.groups()))

    def where(self) -> str:
        """World and measure, linked."""
        if self.file == "bed":
            return f"benchmark, {self.world}: [{BED[self.measure]}](bed.md)"
        if self.file in ON_THE_CARD:
            # The third part's runs are as long as the second's.
            batches = card_page.told(_card(), card_page.BATCHES) | {"clips": "20", "habits": "16"}
            place = f"27 million weights{', much to learn' * (self.file == 'habits')}, {batches[self.file]} batches"
            return f"{place}, {CARD[self.world]}: [{BED[self.measure]}](card_study.md)"
        if self.file == "law":
            prediction, task, base = self.world.split(",")
            place = f"{LAW[prediction]}, {task}{', second base model' * (base == 'second')}"
            return f"0.6 million weights, {place}: [{BED[self.measure]}](kl_law.md)"
        where = {
            "all": "each of the twelve worlds",
            "median": "median of the twelve worlds",
            "-": self.file.replace("step", "checkpoint "),
        }
        place = where.get(self.world, f"[{self.world}](exact.md#the-worlds)")
        title = AT[self.measure] if self.world == "-" else CATALOGUE[self.measure].title
        return f"{place}, [{title}](exact{'_' * bool(self.file)}{self.file}.json)"

    def told(self) -> tuple[str, str]:
        """The number and what it is held against, once the numbers bear it out."""
        if self.file == "bed":
            return self._judged()
        if self.file in ON_THE_CARD:
            return self._on_the_card()
        if self.file == "law":
            return self._of_the_law()
        worlds = list(WORLDS) if self.world in ("all", "median") else [self.world]
        own = [found(self.file, self.method, world, self.measure) for world in worlds]
        other = [self._other(world) for world in worlds]
        self._require(own, other)
        against = f", {WORDS[self.operator]} {self._named(other)}" if self.operator and self.other != "inf" else ""
        return f"`{self.method}` {_spread(own, self.world)}", against

    def _judged(self) -> tuple[str, str]:
        """Of a verdict of the bed: the means over the seeds of its last look."""
        for item in verdicts():
            claim, of = item.test.claim, (item.test.claim.method, item.test.claim.other)
            same = (self.world, self.measure) == (item.test.task, claim.metric) and claim.factor is None
            if not same or {*of} != {self.method, self.other}:
                continue
            above = (item.test.direction > 0) == (of[0] == self.method)
            found = "=" if item.kind == "smaller" else ">" if above else "<"
            if not item.decided or found != self.operator:
                raise Stale(f"{self}: the bed says {item.verdict}")
            values, seeds = bed_values(self.world, self.measure), len(item.test.differences.values)
            own, other = (fmean(values[name][:seeds]) for name in (self.method, self.other))
            words = f"within {claim.margin:g} of" if found == "=" else WORDS[found]
            return f"`{self.method}` {own:.3f}", f", {words} `{self.other}`'s {other:.3f} ({seeds} paired seeds)"
        raise Stale(f"{self}: the bed has no claim about these")

    def _on_the_card(self) -> tuple[str, str]:
        """Of a verdict of docs/card_study.md."""
        pair = f"{self.method} − {self.other}, {self.world}"
        if self.other in OTHERS:
            arm = "best fixed" if self.other == "best_fixed" else self.other
            pair = f"{self.method}, {self.world} − {arm}"
        return self._shown(card_page.verdicts(_card()).get((self.file, pair)), "the study on a GPU")

    def _of_the_law(self) -> tuple[str, str]:
        """Of a verdict of docs/kl_law.md."""
        form = rf"{self.method}, held.* - tuned" if self.other == "tuned" else f"{self.method} - {self.other}"
        found = kl_law.verdicts(kl_law.PAGE.read_text(encoding="utf-8"))
        here = (seen for (*at, pair), seen in found.items() if at == self.world.split(",") and re.fullmatch(form, pair))
        return self._shown(next(here, None), "the study of the KL")

    def _shown(self, seen: card_page.Verdict | None, study: str) -> tuple[str, str]:
        """A verdict in words.

        Raises:
            Stale: there is none, or another one.
        """
        if seen is None:
            raise Stale(f"{self}: {study} has no claim about these")
        if seen.word != VERDICTS[self.operator]:
            raise Stale(f"{self}: {study} says {seen.word}")
        other = f"beside {OTHERS[self.other]}" if self.other in OTHERS else f"from `{self.other}`"
        name = NAMES.get(self.method, f"`{self.method}`")
        return f"{name} {seen.mean} ({seen.interval})", f" {other} (95 % interval): {seen.word}"

    def _other(self, world: str) -> Number:
        try:
            return Number(float(self.other or "nan"))
        except ValueError:
            return found(self.file, self.other, world, self.measure)

    def _named(self, other: list[Number]) -> str:
        by_name = not re.match(r"-?[\d.]|inf", self.other)
        return f"`{self.other}`'s {_spread(other, self.world)}" if by_name else self.other

    def _require(self, own: list[Number], other: list[Number]) -> None:
        if not self.operator:
            return
        pairs = list(zip(own, other, strict=True))
        if self.world == "median":
            pairs = [(Number(median(x.value for x in own)), Number(median(x.value for x in other)))]
        for x, y in pairs:
            if not holds(x, self.operator, y):
                raise Stale(f"{self}: {_told(x)} is not {self.operator} {_told(y)}")


def holds(x: Number, operator: str, y: Number) -> bool:
    """Whether two numbers differ, or not, by `FAR` standard errors.

    >>> holds(Number(2, 0.1), ">", Number(1, 0.1)), holds(Number(2, 1), ">", Number(1))
    (True, False)
    """
    if math.inf in (x.value, y.value):
        return {"=": x.value == y.value, ">": x.value > y.value, "<": x.value < y.value}[operator]
    apart, error = x.value - y.value, FAR * math.hypot(_error(x), _error(y))
    return {">": apart > error, "<": -apart > error, "=": abs(apart) <= error}[operator]


def found(file: str, method: str, world: str, measure: str) -> Number:
    """The number in docs/.

    Raises:
        Stale: there is none.
    """
    try:
        row = rows(file, world == "-")[method.replace("_", " ") if method == "exact_credit" else method]
        return (row if isinstance(row, gradients.Judged) else row.cells[world]).numbers[measure]
    except KeyError as error:
        raise Stale(f"exact_{file}.json has no {error} of {method}, {world}, {measure}") from error


@functools.lru_cache
def rows(file: str, at: bool) -> Mapping[str, study.Row | gradients.Judged]:
    """The methods of a file; `at` a checkpoint, or in worlds."""
    path = DOCS / f"exact{'_' * bool(file)}{file}.json"
    return gradients.load(path)[1] if at else study.load(path)


def _card() -> str:
    return card_page.PAGE.read_text(encoding="utf-8")


@functools.cache
def _bed() -> bed.Bed:
    return bed.Bed.read(bed.HERE / "bed.toml", bed.HERE / "bed.jsonl")


@functools.cache
def verdicts() -> list[Judged]:
    """Of the bed."""
    return _bed().judged()


def bed_values(task: str, metric: str) -> Mapping[str, list[float]]:
    """By method, one a seed."""
    return _bed().found()[task]["values"][metric]


def page() -> str:
    """The page as text."""
    source = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    return HEAD + source["head"].strip() + "\n\n" + "\n".join(line for q in source["question"] for line in _section(q))


def _section(question: dict) -> Iterator[str]:
    """The answer, and behind it, folded, what it rests on. Nested lists are indented by four spaces, as sites need."""
    yield f"## {question['ask']}\n"
    yield f"{question['answer']}\n"
    yield '<details markdown="1"><summary>Evidence</summary>\n'
    for say in question["say"]:
        yield f"- {say['text']}"
        told = [(seen.where(), *seen.told()) for seen in map(Evidence.of, say["see"])]
        for (where, against), line in itertools.groupby(told, key=lambda x: (x[0], x[2])):
            yield f"    - {where}: {', '.join(own for _, own, _ in line)}{against}"
    if "missing" in question:
        yield f"- No evidence here: {question['missing']}"
    yield "\n</details>\n"


def _spread(numbers: list[Number], world: str) -> str:
    if len(numbers) == 1:
        return _told(numbers[0])
    if world == "median":
        return number(round(median(x.value for x in numbers), 4) + 0.0)
    low, high = (pick(numbers, key=lambda x: x.value) for pick in (min, max))
    return f"{_told(low)} to {_told(high)}"


def _told(x: Number) -> str:
    value = "∞" if x.value == math.inf else number(round(x.value, 4) + 0.0)
    return f"{value} ± {number(x.error, 2)}" if _error(x) else value


def _error(x: Number) -> float:
    return x.error if math.isfinite(x.error) else 0.0


def main() -> int:
    try:
        text = page()
    except Stale as error:
        print(f"{SOURCE.name}: {error}", file=sys.stderr)
        return 1
    return write(PAGE, text)


if __name__ == "__main__":
    sys.exit(main())

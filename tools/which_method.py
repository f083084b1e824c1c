"""Writes docs/which_method.md from docs/which_method.toml: every sentence with the numbers that it rests on.

A number that no longer says what its sentence does is an error that names both.

python tools/which_method.py [--check]
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
from statistics import median

from tokenpo.base.text import number
from tokenpo.evidence.exact import at_checkpoint, study
from tokenpo.evidence.exact.catalogue import CATALOGUE
from tokenpo.evidence.exact.study import Number
from tokenpo.evidence.exact.worlds import WORLDS

DOCS = Path(__file__).parents[1] / "docs"
PAGE, SOURCE = DOCS / "which_method.md", DOCS / "which_method.toml"
HEAD = "<!-- Written by tools/which_method.py from docs/which_method.toml and the numbers of docs/exact*.json. -->\n\n"
FAR = 2.0  # standard errors that a difference must have
# FILE: METHOD WORLD MEASURE OPERATOR METHOD-OR-NUMBER
FORM = re.compile(r"(?:(\w+): )?(\S+) (\S+) (\S+)(?: ([<>=]) (\S+))?")
AT = {
    "useful": "useful progress", "against": "useful progress less DAPO's, on the same rollouts",
    "after/useful": "useful progress after 8 minibatches",
}  # fmt: skip
WORDS = {">": "more than", "<": "less than", "=": "as much as"}


class Stale(ValueError):
    """A sentence that its number does not bear out."""


@dataclass(frozen=True)
class Evidence:
    """A number and what it is held against.

    Args:
        file: exact.json, or exact_FILE.json.
        world: of the file; "all" is each of the twelve, "median" their median; "-" at a checkpoint.
        operator: < or >, by two standard errors in every world that is meant, or =: within them, or infinite.
        other: a method of the same file, a number, or inf.
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

    @property
    def place(self) -> tuple[str, ...]:
        """What numbers on one line have in common."""
        return self.file, self.world, self.measure, self.operator, self.other

    def where(self) -> str:
        """World and measure, linked."""
        where = {"all": "each of the twelve worlds", "median": "median of the twelve worlds", "-": "checkpoint"}
        place = where.get(self.world, f"[{self.world}](exact.md#the-worlds)")
        title = AT[self.measure] if self.world == "-" else CATALOGUE[self.measure].title
        return f"{place}, [{title}](exact{'_' * bool(self.file)}{self.file}.json)"

    def told(self) -> tuple[str, str]:
        """The number and what it is held against, once the numbers bear it out."""
        worlds = list(WORLDS) if self.world in ("all", "median") else [self.world]
        own = [found(self.file, self.method, world, self.measure) for world in worlds]
        other = [self._other(world) for world in worlds]
        self._require(own, other)
        against = f", {WORDS[self.operator]} {self._named(other)}" if self.operator and self.other != "inf" else ""
        return f"`{self.method}` {_spread(own, self.world)}", against

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
        return (row if isinstance(row, at_checkpoint.Judged) else row.cells[world]).numbers[measure]
    except KeyError as error:
        raise Stale(f"exact_{file}.json has no {error} of {method}, {world}, {measure}") from error


@functools.lru_cache
def rows(file: str, at: bool) -> Mapping[str, study.Row | at_checkpoint.Judged]:
    """The methods of a file; `at` a checkpoint, or in worlds."""
    path = DOCS / f"exact{'_' * bool(file)}{file}.json"
    return at_checkpoint.load(path)[1] if at else study.load(path)


def page() -> str:
    """The page as text."""
    source = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    return HEAD + source["head"].strip() + "\n\n" + "\n".join(line for q in source["question"] for line in _section(q))


def _section(question: dict) -> Iterator[str]:
    yield f"## {question['ask']}\n"
    for say in question.get("say", ()):
        yield f"- {say['text']}"
        for _, held in itertools.groupby(map(Evidence.of, say["see"]), key=lambda x: x.place):
            line = list(held)
            told = [x.told() for x in line]
            yield f"  - {line[0].where()}: {', '.join(own for own, _ in told)}{told[0][1]}"
    if question.get("say"):
        yield ""
    if "missing" in question:
        yield f"No evidence here: {question['missing']}\n"


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
    if "--check" in sys.argv[1:]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE.name} is {'current' if current else 'out of date: python tools/which_method.py'}")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

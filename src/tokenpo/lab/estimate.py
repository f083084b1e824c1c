"""Numbers with standard errors, from the jackknife over independent replicates, and their JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..base.files import read_text
from ..base.text import number

T = TypeVar("T")


@dataclass(frozen=True)
class Estimate:
    """A statistic of R replicates, and [R] the statistic `without` each of them in turn."""

    value: float
    without: tuple[float, ...] = ()

    @property
    def error(self) -> float:
        """Standard error; NaN with fewer than two replicates."""
        count = len(self.without)
        if count < 2:
            return math.nan
        mean = sum(self.without) / count
        return math.sqrt((count - 1) / count * sum((x - mean) ** 2 for x in self.without))

    def row(self) -> list[float | None]:
        """The numbers for JSON, with seven digits, the value first."""
        return [rounded(x, 7) for x in (self.value, *self.without)]

    @staticmethod
    def of_row(row: Sequence[float | None]) -> Estimate:
        value, *without = (math.nan if x is None else x for x in row)
        return Estimate(value, tuple(without))


@dataclass(frozen=True)
class Number:
    """A measure and its standard error, which is NaN if the value has none."""

    value: float
    error: float = math.nan

    @staticmethod
    def of(estimate: Estimate) -> Number:
        return Number(estimate.value, estimate.error)

    def pair(self) -> list[float | None]:
        """[value, error] for JSON, with four and two digits."""
        return [rounded(self.value), rounded(self.error, 2)]

    @property
    def text(self) -> str:
        return "–" if math.isnan(self.value) else number(round(self.value, 3) + 0.0)

    @property
    def note(self) -> str:
        """The standard error as text, for the line below the value in a table."""
        return "" if math.isnan(self.error) else f"±{number(round(self.error, 6), 2)}"


def rounded(x: float, digits: int = 4) -> float | None:
    """x with this number of significant digits; None, JSON's null, if it is not finite."""
    return float(f"{x:.{digits}g}") if math.isfinite(x) else None


def load_json(path: Path, command: str, parse: Callable[[Any], T]) -> T:
    """`parse` of a file that `tokenpo COMMAND --json` wrote; TokenPOError if it holds something else."""
    try:
        return parse(json.loads(read_text(path)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TokenPOError(f"{path} is no file of `tokenpo {command} --json` ({error!r}): give another name") from error


def jackknife(statistic: Callable[..., float], *replicates: Tensor) -> Estimate:
    """The jackknife estimate of a statistic of tensors [R, ...] whose first axis is the replicate."""
    count = len(replicates[0])
    kept = [torch.arange(count) != left for left in range(count)]
    return Estimate(float(statistic(*replicates)), tuple(float(statistic(*(x[k] for x in replicates))) for k in kept))


def combined(function: Callable[..., float], *estimates: Estimate) -> Estimate:
    """A function of estimates from the same replicates; noise that the estimates share cancels."""
    pairs = zip(*(estimate.without for estimate in estimates), strict=True)
    return Estimate(function(*(e.value for e in estimates)), tuple(function(*row) for row in pairs))


def mean_of(values: Sequence[float]) -> Estimate:
    return jackknife(lambda x: float(x.mean()), torch.tensor(values, dtype=torch.float64))

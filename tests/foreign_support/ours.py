"""Our side of a comparison."""

import dataclasses
from typing import Any

import numpy as np

import tokenpo
from oracle_support import Outcome, Sample, run
from tokenpo.core.parts import ConstantLength


def ours(chosen: str | tokenpo.Objective, sample: Sample, **options: Any) -> tuple[Outcome, np.ndarray]:
    """Our loss of a method or an objective, and the advantage [N, T] it used, for foreign code to use too."""
    objective = tokenpo.method(chosen, **options) if isinstance(chosen, str) else chosen
    got = run(objective, sample)
    return got, got.terms["advantage"]


def summed(name: str, **options: Any) -> tokenpo.Objective:
    """The method with a sum over the tokens of a response where it has a mean."""
    return dataclasses.replace(tokenpo.method(name, **options), aggregate=ConstantLength(1.0))

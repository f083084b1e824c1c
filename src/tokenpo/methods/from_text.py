"""Reads methods and the keywords of `extended` as text files write them: names for parts, "none" for None.

Recipes and verl's settings share these keys.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from ..base.errors import TokenPOError, refuse
from ..core import parts
from ..core.ranges import NotNegative, Positive, Share, at_least
from .extensions import Preset
from .extensions import preset as named
from .signature import check_options, options_of

T = TypeVar("T")
ESTIMATORS: Mapping[str, parts.Estimator] = {"k1": parts.K1(), "k2": parts.K2(), "k3": parts.K3()}
DISTANCES: Mapping[str, parts.Distance] = {"tv": parts.TotalVariation(), "binary_kl": parts.BinaryKl()}
LEVELS = {"token": parts.EachToken(), "total": parts.Total(), "mean": parts.Mean(), "every": parts.Every()}


def read(owner: str, build: Callable[..., T], given: Mapping[str, Any]) -> T:
    """Calls a builder with options from a text file: "none" is None where it is allowed, and a list is a tuple.

    Args:
        owner: the table of these options, for messages.

    Raises:
        UnknownName: an option that `build` does not have.
        TokenPOError: an option is missing, of the wrong kind, or out of range.
    """
    known = options_of(build)
    options = {
        key: None if value == "none" and key in known and "None" in known[key].kinds else _tuples(value)
        for key, value in given.items()
    }
    check_options(owner, options, build, kind="")
    try:
        return build(**options)
    except TypeError as error:
        if isinstance(error, TokenPOError):
            raise
        raise TokenPOError(f"{owner}: an option is missing, or of the wrong kind: {error}") from error


def reference_kl(
    beta: Positive, estimator: Literal["k1", "k2", "k3"] = "k3", straight_through: bool = False, unbiased: bool = False
) -> parts.Penalty:
    """Builds the penalty on leaving the reference from a table `reference_kl`.

    Args:
        beta: coefficient.
        straight_through: the estimator's value with k2's gradient.
        unbiased: k1 or k3 times the token's ratio, with gradient through both.
    """
    used = ESTIMATORS[estimator]
    if not unbiased:
        return parts.ReferenceKl(float(beta), parts.StraightThrough(used) if straight_through else used)
    if straight_through or estimator == "k2":
        raise TokenPOError(
            "reference_kl.unbiased weighs k1 or k3 by the ratio, which makes the gradient the divergence's: set "
            "estimator to one of them, and leave straight_through out"
        )
    return parts.Reweighted(parts.ReferenceKl(float(beta), used))


def correction(
    preset: str | None = None,
    level: Literal["token", "sequence", "geometric"] | None = "token",
    mode: Literal["truncate", "mask"] = "truncate",
    cap: Annotated[float, at_least(1)] | None = 2.0,
    floor: Share = 0.0,
    normalise: bool = False,
    reject: Sequence[Mapping[str, Any]] = (),
    leaves: bool = False,
) -> Preset:
    """Builds the correction for the sampler from a table `correction`.

    Args:
        preset: a name of `extensions.PRESETS`, in place of all options but `leaves`.
        level: one weight a token, or a response (product or geometric mean of its ratios); None: without weight.
        mode: beyond the bounds: clamp the weight, or drop what it weighs.
        cap, floor: bounds of the weight; None: without bound.
        normalise: divide by the mean over the rollout batch.
        reject: tables of `criterion`; what fails one of them is dropped.
        leaves: rejected tokens leave the denominators.
    """
    given = {"level": level, "mode": mode, "cap": cap, "floor": floor, "normalise": normalise, "reject": tuple(reject)}
    odd = [name for name, value in given.items() if value != USUAL[name]]
    faults = [
        preset is not None
        and bool(odd)
        and f"correction: with a preset only leaves can be set: drop {', '.join(sorted(odd))}, or preset",
        not (preset or level or reject)
        and "correction: without a weight and without reject it corrects nothing: drop the section",
        leaves and not (preset or reject) and "correction: leaves is about what is rejected: add reject",
    ]
    refuse(faults, TokenPOError)
    if preset is not None:
        return named(preset, leaves=leaves)
    weights: tuple[parts.Weight, ...] = ()
    if level is not None:
        weight = parts.RolloutCorrection(
            level != "token", mode == "mask", _limit(cap), float(floor), level == "geometric"
        )
        weights = (parts.NormalisedWeight(weight, parts.RolloutMean(weight)) if normalise else weight,)
    if reject:
        criteria = tuple(read(f"correction.reject.{i}", criterion, table) for i, table in enumerate(reject))
        weights += (parts.Rejection(criteria, leaves=leaves),)
    return Preset(weights)


def criterion(
    over: Literal["token", "total", "mean", "every"] = "token",
    of: Literal["ratio", "k2", "k3", "tv", "binary_kl"] = "ratio",
    low: NotNegative = 0.0,
    high: NotNegative | None = None,
) -> parts.Criterion:
    """Builds a criterion: bounds of a token, or of a response by its tokens' sum, mean or each of them."""
    return parts.Criterion(LEVELS[over], float(low), _limit(high), ESTIMATORS.get(of) or DISTANCES.get(of))


USUAL = {name: option.default for name, option in options_of(correction).items()}


def _limit(bound: float | None) -> float:
    return math.inf if bound is None else float(bound)


def _tuples(value: Any) -> Any:
    """Lists become tuples, so that objectives stay hashable."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value

"""verl's `algorithm.rollout_correction` as weights of the objective; does not import verl."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...base.errors import TokenPOError, choose
from ...core.parts import (
    K2,
    K3,
    Criterion,
    EachToken,
    Estimator,
    Every,
    Level,
    Mean,
    NormalisedWeight,
    Rejection,
    RolloutCorrection,
    RolloutMean,
    Total,
    Weight,
)
from ...methods.corrections import Preset

PLACE = "algorithm.rollout_correction"
# Key -> verl's default, which asks for nothing.
KEYS: dict[str, Any] = {
    "rollout_is": None,
    "rollout_is_threshold": 2.0,
    "rollout_is_batch_normalize": False,
    "rollout_rs": None,
    "rollout_rs_threshold": None,
    "bypass_mode": False,
    "loss_type": "ppo_clip",
}
# Name of a rejection -> the level that is judged, and its divergence; None is the ratio.
_REJECTIONS: dict[str, tuple[Level, Estimator | None]] = {
    f"{judged}_{kind}": (level, of)
    for judged, level in {"token": EachToken(), "seq_sum": Total(), "seq_mean": Mean(), "seq_max": Every()}.items()
    for kind, of in {"k1": None, "k2": K2(), "k3": K3()}.items()
    if (judged, kind) != ("seq_max", "k1")
}


def preset_of(section: Mapping[str, Any]) -> Preset:
    """The preset that verl's keys ask for.

    Raises:
        UnknownName: a level, rejection or loss that verl does not have.
        TokenPOError: a threshold that cannot be read, or too few of them.
    """
    given = {key: section.get(key, usual) for key, usual in KEYS.items()}
    bypass = bool(given["bypass_mode"])
    plain = choose(f"{PLACE}.loss_type", given["loss_type"], {"ppo_clip": False, "reinforce": True})
    if plain and not bypass:
        raise TokenPOError(
            f"{PLACE}.loss_type=reinforce says something together with bypass_mode alone: set bypass_mode=True, or "
            "loss_type=ppo_clip and +algorithm.tokenpo.method=gpg"
        )
    weights: tuple[Weight, ...] = ()
    # A clipped ratio to the sampler corrects already: there verl uses weights in its metrics alone.
    if given["rollout_is"] is not None and (plain or not bypass):
        weights += (_weight(given, current=bypass),)
    if given["rollout_rs"] is not None:
        weights += (_rejection(str(given["rollout_rs"]), given["rollout_rs_threshold"], current=bypass),)
    return Preset(weights, bypass, plain)


def _weight(given: Mapping[str, Any], *, current: bool) -> Weight:
    sequence = choose(f"{PLACE}.rollout_is", given["rollout_is"], {"token": False, "sequence": True})
    low, high = _bounds("rollout_is_threshold", given["rollout_is_threshold"])
    weight = RolloutCorrection(sequence, low is not None, high, low or 0.0, current=current)
    if not given["rollout_is_batch_normalize"]:
        return weight
    if current:
        raise TokenPOError(
            f"{PLACE}.rollout_is_batch_normalize with bypass_mode: the mean would be that of each micro-batch, under a "
            "policy that moves: set it to False"
        )
    return NormalisedWeight(weight, RolloutMean(weight))


def _rejection(names: str, thresholds: Any, *, current: bool) -> Rejection:
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    given = [part.strip() for part in str(thresholds).split(",")]
    if thresholds is None or len(given) not in (1, len(wanted)):
        raise TokenPOError(
            f"{PLACE}.rollout_rs_threshold = {thresholds!r}: give one threshold, or one for each of {', '.join(wanted)}"
        )
    given = given * len(wanted) if len(given) == 1 else given
    return Rejection(tuple(_criterion(*pair) for pair in zip(wanted, given, strict=True)), current=current)


def _criterion(name: str, threshold: str) -> Criterion:
    level, of = choose(f"{PLACE}.rollout_rs", name, _REJECTIONS)
    low, high = _bounds("rollout_rs_threshold", threshold)
    if of is not None:
        if low is not None:
            raise TokenPOError(f"{PLACE}.rollout_rs_threshold = {threshold!r}: {name} has an upper bound only")
        return Criterion(level, high=high, of=of)
    # verl's k1 is −log ρ: its bounds are those of 1/ρ.
    return Criterion(level, 1 / high, 1 / (1 / high if low is None else low))


def _bounds(key: str, threshold: Any) -> tuple[float | None, float]:
    """(lower, upper) of "upper" or "lower_upper", above 0."""
    try:
        *low, high = (float(part) for part in str(threshold).split("_", 1))
    except ValueError:
        low, high = [], math.nan
    if not all(0 < bound < math.inf for bound in (*low, high)):
        raise TokenPOError(
            f"{PLACE}.{key} = {threshold!r} is no threshold above 0: write 2.0, or '0.5_5.0' for two ends"
        )
    return (low[0] if low else None), high

"""verl's `algorithm.rollout_correction` as weights of the objective; does not import verl."""

import math
from collections.abc import Mapping
from typing import Any

from ...base.errors import TokenPOError, choose
from ...core import parts
from ...methods.extensions import Preset

PLACE = "algorithm.rollout_correction"
# Key -> verl's default, which corrects nothing.
KEYS: dict[str, Any] = {
    "rollout_is": None,
    "rollout_is_threshold": 2.0,
    "rollout_is_batch_normalize": False,
    "rollout_rs": None,
    "rollout_rs_threshold": None,
    "bypass_mode": False,
    "loss_type": "ppo_clip",
}
_LEVELS = {"token": parts.EachToken(), "seq_sum": parts.Total(), "seq_mean": parts.Mean(), "seq_max": parts.Every()}
# Name of a rejection -> (level, divergence); None means the ratio.
_REJECTIONS: dict[str, tuple[parts.Level, parts.Estimator | None]] = {
    f"{judged}_{kind}": (level, of)
    for judged, level in _LEVELS.items()
    for kind, of in {"k1": None, "k2": parts.K2(), "k3": parts.K3()}.items()
    if (judged, kind) != ("seq_max", "k1")
}


def preset_of(section: Mapping[str, Any]) -> Preset:
    """The preset for verl's keys; raises UnknownName for a name, TokenPOError for a threshold."""
    settings = {key: section.get(key, default) for key, default in KEYS.items()}
    bypass = bool(settings["bypass_mode"])
    plain = choose(f"{PLACE}.loss_type", settings["loss_type"], {"ppo_clip": False, "reinforce": True})
    if plain and not bypass:
        raise TokenPOError(
            f"{PLACE}.loss_type=reinforce says something together with bypass_mode alone: set bypass_mode=True, or "
            "loss_type=ppo_clip and +algorithm.tokenpo.method=gpg"
        )
    weights: tuple[parts.Weight, ...] = ()
    # A clipped ratio to the sampler already corrects; verl then uses the weights in its metrics only.
    if settings["rollout_is"] is not None and (plain or not bypass):
        weights += (_weight(settings, current=bypass),)
    if settings["rollout_rs"] is not None:
        weights += (_rejection(str(settings["rollout_rs"]), settings["rollout_rs_threshold"], current=bypass),)
    return Preset(weights, bypass, plain)


def _weight(settings: Mapping[str, Any], *, current: bool) -> parts.Weight:
    sequence = choose(f"{PLACE}.rollout_is", settings["rollout_is"], {"token": False, "sequence": True})
    low, high = _bounds("rollout_is_threshold", settings["rollout_is_threshold"])
    weight = parts.RolloutCorrection(sequence, low is not None, high, low or 0.0, current=current)
    if not settings["rollout_is_batch_normalize"]:
        return weight
    if current:
        raise TokenPOError(
            f"{PLACE}.rollout_is_batch_normalize with bypass_mode: the mean would be that of each micro-batch, under a "
            "policy that moves: set it to False"
        )
    return parts.NormalisedWeight(weight, parts.RolloutMean(weight))


def _rejection(names: str, thresholds: Any, *, current: bool) -> parts.Rejection:
    kinds = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    bounds = [one.strip() for one in str(thresholds).split(",")]
    if thresholds is None or len(bounds) not in (1, len(kinds)):
        raise TokenPOError(
            f"{PLACE}.rollout_rs_threshold = {thresholds!r}: give one threshold, or one for each of {', '.join(kinds)}"
        )
    bounds = bounds * len(kinds) if len(bounds) == 1 else bounds
    return parts.Rejection(tuple(_criterion(*pair) for pair in zip(kinds, bounds, strict=True)), current=current)


def _criterion(name: str, threshold: str) -> parts.Criterion:
    level, of = choose(f"{PLACE}.rollout_rs", name, _REJECTIONS)
    low, high = _bounds("rollout_rs_threshold", threshold)
    if of is not None:
        if low is not None:
            raise TokenPOError(f"{PLACE}.rollout_rs_threshold = {threshold!r}: {name} has an upper bound only")
        return parts.Criterion(level, high=high, of=of)
    # verl's k1 is −log ρ: its bounds are those of 1/ρ.
    return parts.Criterion(level, 1 / high, 1 / (1 / high if low is None else low))


def _bounds(key: str, threshold: Any) -> tuple[float | None, float]:
    """(lower, upper) from "upper" or "lower_upper", all above 0; lower is None for "upper"."""
    try:
        *low, high = (float(bound) for bound in str(threshold).split("_", 1))
    except ValueError:
        low, high = [], math.nan
    if not all(0 < bound < math.inf for bound in (*low, high)):
        raise TokenPOError(
            f"{PLACE}.{key} = {threshold!r} is no threshold above 0: write 2.0, or '0.5_5.0' for two ends"
        )
    return (low[0] if low else None), high

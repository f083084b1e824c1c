"""Corrections for the sampling policy, under the names of other frameworks.

    tokenpo.corrected(tokenpo.method("grpo"), "icepop")

decoupled_* and bypass_* are verl's, with its bounds: verl's k1 bounds 1/ρ, so [low, high] there is [1/high, 1/low] of
ρ here. For other bounds build the parts of `tokenpo.parts` (`Criterion`, `Rejection`, `RolloutCorrection`).
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.errors import TokenPOError, choose
from ..core.objective import Objective
from ..core.parts import K3, Criterion, Mean, Rejection, RolloutCorrection, Strayed, Total, Weight, walk
from ..core.types import Batch


@dataclass(frozen=True)
class Preset:
    """Changes that a correction makes to an objective.

    Args:
        weights: added to the objective's own.
        bypass: the sampling policy replaces the old one.
        plain: the surrogate becomes A · lp, so that only the weights correct.
    """

    weights: tuple[Weight, ...] = ()
    bypass: bool = False
    plain: bool = False


_TOKEN, _SEQUENCE = RolloutCorrection(), RolloutCorrection(sequence=True)
_ICEPOP = RolloutCorrection(mask=True, floor=0.5, cap=5.0)
_PRODUCT = Rejection((Criterion(Total(), 1 / 2.0, 1 / 0.5),))
_GEOMETRIC = Rejection((Criterion(Mean(), 1 / 1.001, 1 / 0.999),))
_K3 = Rejection((Criterion(Mean(), high=0.01, of=K3()),))


def _now(*weights: RolloutCorrection | Rejection) -> tuple[Weight, ...]:
    """The weights at the current policy: under bypass the old policy is the sampler itself."""
    return tuple(dataclasses.replace(weight, current=True) for weight in weights)


PRESETS: Mapping[str, Preset] = {
    "tis": Preset((_TOKEN,)),
    "seq_tis": Preset((_SEQUENCE,)),
    "icepop": Preset((_ICEPOP,)),
    "mis": Preset((RolloutCorrection(mask=True, floor=0.5),)),
    "seq_mis": Preset((_SEQUENCE, _PRODUCT)),
    "mis_geo": Preset((_GEOMETRIC,)),
    "mis_k3": Preset((_K3,)),
    # Unbounded token weights; responses whose geometric mean is far from 1 are rejected.
    "seq_mask_tis": Preset((RolloutCorrection(cap=math.inf), Rejection((Criterion(Mean(), 0.5, 5.0),)))),
    "trl": Preset((RolloutCorrection(sequence=True, mask=True, cap=3.0),)),
    "bypass": Preset(bypass=True),
    "decoupled_token_is": Preset((_TOKEN,)),
    "decoupled_seq_is": Preset((_SEQUENCE,)),
    "decoupled_token_icepop": Preset((_ICEPOP,)),
    "decoupled_seq_is_rs": Preset((_SEQUENCE, _PRODUCT)),
    "decoupled_geo_rs": Preset((_GEOMETRIC,)),
    "decoupled_geo_rs_seq_tis": Preset((_SEQUENCE, _GEOMETRIC)),
    "decoupled_geo_rs_token_tis": Preset((_TOKEN, _GEOMETRIC)),
    "decoupled_k3_rs": Preset((_K3,)),
    "decoupled_k3_rs_seq_tis": Preset((_SEQUENCE, _K3)),
    "decoupled_k3_rs_token_tis": Preset((_TOKEN, _K3)),
    "bypass_ppo_clip": Preset(bypass=True),
    "bypass_ppo_clip_geo_rs": Preset(_now(_GEOMETRIC), bypass=True),
    "bypass_ppo_clip_k3_rs": Preset(_now(_K3), bypass=True),
    "bypass_pg_is": Preset(_now(_SEQUENCE), bypass=True, plain=True),
    "bypass_pg_token_icepop": Preset(_now(_ICEPOP), bypass=True, plain=True),
    "bypass_pg_geo_rs": Preset(_now(_GEOMETRIC), bypass=True, plain=True),
    "bypass_pg_geo_rs_seq_tis": Preset(_now(_SEQUENCE, _GEOMETRIC), bypass=True, plain=True),
    "bypass_pg_geo_rs_token_tis": Preset(_now(_TOKEN, _GEOMETRIC), bypass=True, plain=True),
    "disabled": Preset(),
}


def preset(name: str, *, leaves: bool = False) -> Preset:
    """Returns the preset of a name, whose hyphens count as underscores.

    Args:
        leaves: rejected tokens leave the denominators.

    Raises:
        UnknownName: no such preset.
        TokenPOError: `leaves` with a preset that rejects nothing.
    """
    found = choose("correction", name.replace("-", "_"), PRESETS)
    if not leaves:
        return found
    if not any(isinstance(part, Rejection) for part in found.weights):
        raise TokenPOError(
            f"correction {name} rejects nothing: leaves=True goes with one that does, mis_geo for example"
        )
    weights = (dataclasses.replace(x, leaves=True) if isinstance(x, Rejection) else x for x in found.weights)
    return dataclasses.replace(found, weights=tuple(weights))


def rejected(objective: Objective, batch: Batch) -> Tensor | None:
    """[N, T] bool, response tokens dropped by the objective's corrections; None if no correction can drop tokens."""
    batch, dropped = objective.restricted(batch), []
    for part in walk(objective.weights):
        if isinstance(part, Rejection):
            dropped.append(~part.kept_of(batch))
        elif isinstance(part, RolloutCorrection) and part.mask:
            dropped.append(part.of_batch(batch) == 0)
        elif isinstance(part, Strayed):
            dropped.append(part(batch))
    return functools.reduce(torch.logical_or, dropped) & batch.mask if dropped else None

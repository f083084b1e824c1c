"""Adds to any method: shaped rewards, a teacher, a penalty on leaving the reference, a correction for the sampler.

tokenpo.methods.extended(tokenpo.method("dapo"), reference=tokenpo.parts.ReferenceKl(0.01), correction="icepop")

Corrections have the names of other frameworks: decoupled_* and bypass_* are verl's, with its bounds. verl's k1 bounds
1/ρ, so [low, high] there is [1/high, 1/low] of ρ here. For other bounds build `Criterion`, `Rejection` and
`RolloutCorrection` of `tokenpo.parts`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..base.errors import TokenPOError, choose
from ..core import parts
from ..core.objective import Objective
from ..core.trajectories import join_batch
from ..core.types import TAUGHT, Batch


@dataclass(frozen=True)
class Preset:
    """Changes that a correction makes: added weights, and for `bypass` the sampling policy in place of the old one.

    `plain` makes the surrogate A · lp, so that only the weights correct.
    """

    weights: tuple[parts.Weight, ...] = ()
    bypass: bool = False
    plain: bool = False


_TOKEN, _SEQUENCE = parts.RolloutCorrection(), parts.RolloutCorrection(sequence=True)
_ICEPOP = parts.RolloutCorrection(mask=True, floor=0.5, cap=5.0)
_PRODUCT = parts.Rejection((parts.Criterion(parts.Total(), 1 / 2.0, 1 / 0.5),))
_GEOMETRIC = parts.Rejection((parts.Criterion(parts.Mean(), 1 / 1.001, 1 / 0.999),))
_K3 = parts.Rejection((parts.Criterion(parts.Mean(), high=0.01, of=parts.K3()),))


def _now(*weights: parts.RolloutCorrection | parts.Rejection) -> tuple[parts.Weight, ...]:
    """The weights at the current policy: under bypass the old policy is the sampler itself."""
    return tuple(dataclasses.replace(weight, current=True) for weight in weights)


PRESETS: Mapping[str, Preset] = {
    "tis": Preset((_TOKEN,)),
    "seq_tis": Preset((_SEQUENCE,)),
    "icepop": Preset((_ICEPOP,)),
    "mis": Preset((parts.RolloutCorrection(mask=True, floor=0.5),)),
    "seq_mis": Preset((_SEQUENCE, _PRODUCT)),
    "mis_geo": Preset((_GEOMETRIC,)),
    "mis_k3": Preset((_K3,)),
    # Unbounded token weights; responses whose geometric mean is far from 1 are rejected.
    "seq_mask_tis": Preset(
        (parts.RolloutCorrection(cap=math.inf), parts.Rejection((parts.Criterion(parts.Mean(), 0.5, 5.0),)))
    ),
    "trl": Preset((parts.RolloutCorrection(sequence=True, mask=True, cap=3.0),)),
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
    """Returns the preset of a name, hyphens as underscores; `leaves`: rejected tokens leave the denominators."""
    found = choose("correction", name.replace("-", "_"), PRESETS)
    if not leaves:
        return found
    if not any(isinstance(part, parts.Rejection) for part in found.weights):
        raise TokenPOError(
            f"correction {name} rejects nothing: leaves=True goes with one that does, mis_geo for example"
        )
    weights = (dataclasses.replace(x, leaves=True) if isinstance(x, parts.Rejection) else x for x in found.weights)
    return dataclasses.replace(found, weights=tuple(weights))


Form = Literal["credit", "penalty", "divergence"]


@dataclass(frozen=True)
class Teaching:
    """The arguments of `with_teacher`, as a value."""

    coef: float
    form: Form = "credit"
    gamma: float = 0.0
    beta: float | None = None


def extended(
    objective: Objective,
    *,
    reference: parts.Penalty | None = None,
    correction: Preset | str | None = None,
    teacher: Teaching | None = None,
    shaping: Iterable[parts.Shaping] = (),
    labels: Mapping[str, str] = {},
) -> Objective:
    """Returns the objective with these additions; None adds nothing.

    Args:
        reference: a penalty on leaving the reference, added to the method's penalties.
        correction: corrects for the policy that sampled: a preset, or its name.
        teacher: distillation, added to the credit or to the penalties.
        shaping: terms added to the reward.
        labels: keyword of this function -> the user's setting that messages name in its place.

    Raises:
        TokenPOError: the method has a penalty, correction or teacher of its own; the message names all that it has.
        UnknownName: no such preset, or no such form of a teacher.
    """
    added = preset(correction) if isinstance(correction, str) else correction or Preset()
    given = {"reference": reference, "correction": correction and added, "teacher": teacher}
    asked = [(check, labels.get(name, name), given[name]) for name, check in CHECKS.items() if given[name] is not None]
    if faults := [fault for check, label, value in asked if (fault := check(objective, label, value))]:
        raise TokenPOError(*faults)
    objective = dataclasses.replace(objective, shaping=(*objective.shaping, *shaping))
    if teacher is not None:
        objective = with_teacher(objective, **vars(teacher))
    return dataclasses.replace(
        objective,
        surrogate=parts.LogLikelihood() if added.plain else objective.surrogate,
        weights=objective.weights + added.weights,
        penalties=objective.penalties + (() if reference is None else (reference,)),
        bypass=objective.bypass or added.bypass,
    )


def _second_reference(objective: Objective, label: str, reference: parts.Penalty) -> str | None:
    own = next((part for part in parts.walk(objective.penalties) if isinstance(part, parts.ReferenceKl)), None)
    return own and (
        f"{label} comes on top of {own}, which {objective.name} has already: drop it, or switch the method's own off "
        "with its option for the coefficient"
    )


def _second_correction(objective: Objective, label: str, correction: Preset) -> str | None:
    if not objective.corrects_rollout or not any(part.corrects_rollout for part in correction.weights):
        return None
    return (
        f"{label} comes on top of {objective.corrects_rollout[0]}, by which {objective.name} weighs against the policy "
        "that sampled already: drop it, or take the ratio to the old policy (for dppo: anchor = 'old')"
    )


def _second_teacher(objective: Objective, label: str, teacher: Teaching) -> str | None:
    if not objective.needs & TAUGHT:
        return None
    return (
        f"{label} adds a teacher, and {objective.name} reads one already: drop it, as the method has a coefficient of "
        "its own"
    )


CHECKS: Mapping[str, Callable[[Objective, str, Any], str | None]] = {
    "reference": _second_reference,
    "correction": _second_correction,
    "teacher": _second_teacher,
}


def corrected(objective: Objective, name: str, *, leaves: bool = False) -> Objective:
    """Returns the objective with a correction for the sampling policy: the preset of this name.

    Args:
        leaves: rejected tokens leave the denominators.

    Raises:
        UnknownName: no such preset.
        TokenPOError: the objective has a correction, or the preset rejects nothing before the first update.
    """
    return extended(objective, correction=preset(name, leaves=leaves), labels={"correction": "the correction"})


def with_teacher(
    objective: Objective, coef: float, *, form: Form = "credit", gamma: float = 0.0, beta: float | None = None
) -> Objective:
    """Returns the objective plus `coef` times distillation from a teacher.

    Args:
        coef: ≥ 0. Advantages have no unit and a teacher's log-ratios are nats, so it has to be chosen for the method.
        form: "credit" adds log q − lp_old to the advantage, and the method's ratio, clip and weights act on the sum; a
            ratio of whole responses then credits every token with the mean of its response. "penalty" adds the
            divergence from the teacher at the sampled tokens to the loss, apart from all of them (`TeacherKl`);
            "divergence" that of the whole distributions (`TeacherDivergence`).
        gamma: discount of later tokens, of the credit; 0 credits a token with itself alone.
        beta: of the divergence: 0 is KL(q ‖ p), 1 is KL(p ‖ q), values between are Jensen-Shannon's; None is 0.5.

    Raises:
        TokenPOError: form="credit" for a method whose credit remembers earlier batches, or an option of another form.
        UnknownName: no such form.
    """
    if (form != "credit" and gamma) or (form != "divergence" and beta is not None):
        raise TokenPOError(
            f"with_teacher: gamma belongs to the credit and beta to the divergence: not to form={form!r}"
        )
    if form == "credit":
        return dataclasses.replace(objective, credit=parts.TeacherCredit(objective.credit, coef, gamma))
    penalties = {
        "penalty": parts.TeacherKl(coef),
        "divergence": parts.TeacherDivergence(coef, 0.5 if beta is None else beta),
    }
    penalty = choose("with_teacher: form", form, penalties)
    return dataclasses.replace(objective, penalties=(*objective.penalties, penalty))


def rejected(objective: Objective, batch: Batch) -> Tensor | None:
    """[N, T] bool, response tokens dropped by the objective's corrections; None if no correction can drop tokens."""
    whole, places = join_batch(batch)
    batch, dropped = objective.restricted(whole), []
    for part in parts.walk(objective.weights):
        if isinstance(part, parts.Rejection):
            dropped.append(~part.kept_of(batch))
        elif isinstance(part, parts.RolloutCorrection) and part.mask:
            dropped.append(part.of_batch(batch) == 0)
        elif isinstance(part, parts.Strayed):
            dropped.append(part(batch))
    if not dropped:
        return None
    found = functools.reduce(torch.logical_or, dropped) & batch.mask
    return found if places is None else places.apart(found)

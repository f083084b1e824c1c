"""Adds to any method: shaped rewards, a teacher, a penalty on leaving the reference, a correction for the sampler.

tokenpo.methods.extended(tokenpo.method("dapo"), reference=tokenpo.parts.ReferenceKl(0.01), correction="icepop")
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..base.errors import TokenPOError, choose
from ..core.objective import Objective
from ..core.parts import LogLikelihood, Penalty, ReferenceKl, Shaping, TeacherCredit, TeacherDivergence, TeacherKl, walk
from ..core.types import TAUGHT
from .corrections import Preset, preset

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
    reference: Penalty | None = None,
    correction: Preset | str | None = None,
    teacher: Teaching | None = None,
    shaping: Iterable[Shaping] = (),
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
        surrogate=LogLikelihood() if added.plain else objective.surrogate,
        weights=objective.weights + added.weights,
        penalties=objective.penalties + (() if reference is None else (reference,)),
        bypass=objective.bypass or added.bypass,
    )


def _second_reference(objective: Objective, label: str, reference: Penalty) -> str | None:
    own = next((part for part in walk(objective.penalties) if isinstance(part, ReferenceKl)), None)
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
    """Returns the objective with a correction for the sampling policy.

    Args:
        name: the preset; hyphens count as underscores.
        leaves: rejected tokens leave the denominators.

    Raises:
        UnknownName: no such preset.
        TokenPOError: the objective already corrects for the sampling policy, or `leaves` with a preset that rejects
            nothing before the first update.
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
        return dataclasses.replace(objective, credit=TeacherCredit(objective.credit, coef, gamma))
    penalties = {"penalty": TeacherKl(coef), "divergence": TeacherDivergence(coef, 0.5 if beta is None else beta)}
    penalty = choose("with_teacher: form", form, penalties)
    return dataclasses.replace(objective, penalties=(*objective.penalties, penalty))

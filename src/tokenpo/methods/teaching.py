"""A teacher for any method.

tokenpo.with_teacher(tokenpo.method("grpo"), 0.1)
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..base.errors import TokenPOError, choose
from ..core.objective import Objective
from ..core.parts import TeacherCredit, TeacherKl

Form = Literal["credit", "penalty"]


def with_teacher(objective: Objective, coef: float, *, form: Form = "credit", gamma: float = 0.0) -> Objective:
    """The objective with coef times a distillation from a teacher.

    Args:
        coef: ≥ 0. Advantages have no unit and a teacher's log-ratios are nats, so it has to be chosen for the method.
        form: "credit" adds log q − lp_old to the advantage, and the method's ratio, clip and weights act on the sum; a
            ratio of whole responses then credits every token with the mean of its response. "penalty" adds the
            divergence from the teacher to the loss, apart from all of them (`TeacherKl`).
        gamma: discount of later tokens, for the credit; 0 credits a token with itself alone.

    Raises:
        TokenPOError: the credit of a method that remembers earlier batches, or gamma with a penalty.
        UnknownName: no such form.
    """
    if choose("with_teacher: form", form, {"credit": True, "penalty": False}):
        return dataclasses.replace(objective, credit=TeacherCredit(objective.credit, coef, gamma))
    if gamma:
        raise TokenPOError("with_teacher: gamma discounts later tokens of the credit: leave it out of the penalty")
    return dataclasses.replace(objective, penalties=(*objective.penalties, TeacherKl(coef)))

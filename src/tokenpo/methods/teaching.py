"""A teacher for any method.

tokenpo.with_teacher(tokenpo.method("grpo"), 0.1)
"""

import dataclasses
from typing import Literal

from ..base.errors import TokenPOError, choose
from ..core.objective import Objective
from ..core.parts import TeacherCredit, TeacherDivergence, TeacherKl

Form = Literal["credit", "penalty", "divergence"]


def with_teacher(
    objective: Objective, coef: float, *, form: Form = "credit", gamma: float = 0.0, beta: float | None = None
) -> Objective:
    """The objective plus `coef` times distillation from a teacher.

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

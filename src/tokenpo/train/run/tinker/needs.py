"""Refusals of recipes that a server cannot train; `tinker` is not imported."""

from ....base.errors import Unsupported
from ....core.head.kept import Cut
from ....core.objective import Objective
from ....hosts.tinker.responses import ENGINE, PROVIDES, require
from ...recipe.config import Lora
from ...recipe.plan import Plan


def accepted(plan: Plan) -> Objective:
    """The plan's objective, if a server can honour the recipe.

    Raises:
        Unsupported: a setting, or an input of the method, that a server lacks; the message has the remedy.
    """
    config, model, lora, teacher = plan.config, plan.config.model, plan.config.model.lora, plan.config.teacher
    refusals = (
        (
            model.path == "tiny",
            "the model tiny, which only this package has: --set model.path=NAME names one of the server's",
        ),
        (lora is None, "training of all weights, only LoRA: --set model.lora.rank=32"),
        (
            lora is not None and (lora.alpha, lora.targets) != (Lora().alpha, Lora().targets),
            "model.lora.alpha and model.lora.targets, which the server chooses: leave them out",
        ),
        (
            model.device not in ("auto", "cpu"),
            f"model.device = {model.device!r}, as the model is on the server: --set model.device=auto",
        ),
        (
            model.dtype != "float32" or config.train.autocast,
            "model.dtype and train.autocast, as precision is the server's: leave them out",
        ),
        (
            config.rollout.temperature != 1,
            "rollout.temperature other than 1, as the API does not say at which temperature a server reports "
            "log-probabilities: --set rollout.temperature=1",
        ),
        (
            config.rollout.cut != Cut(),
            "rollout.top_p, top_k and min_p, as the API does not say which tokens a server kept: leave them out",
        ),
        (
            teacher is not None and teacher.hint is not None,
            "teacher.hint, as its teacher reads what the policy reads: --set teacher.hint=none with a teacher.path",
        ),
    )
    for refused, sentence in refusals:
        if refused:
            raise Unsupported(f"{ENGINE} does not have {sentence}, or leave out --engine tinker")
    untaught = teacher is None or teacher.path is None
    require(plan.objective, PROVIDES - {"teacher_logprob"} if untaught else PROVIDES)
    return plan.objective

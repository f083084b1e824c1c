"""Refusals of recipes that a server cannot train; `tinker` is not imported."""

from ....base.errors import refuse
from ....core.head.kept import Cut
from ....core.objective import Objective
from ....hosts.tinker.responses import ENGINE, PROVIDES, require
from ...recipe.config import Lora
from ...recipe.plan import Plan


def accepted(plan: Plan) -> Objective:
    """The plan's objective, if a server can train the recipe.

    Raises:
        Unsupported: settings, or an input of the method, that a server lacks; the message has the remedies.
    """
    config, model, lora, teacher = plan.config, plan.config.model, plan.config.model.lora, plan.config.teacher
    usual = lora is None or (lora.alpha, lora.targets) == (Lora().alpha, Lora().targets)
    faults = {
        "the model tiny, which only this package has: --set model.path=NAME": model.path == "tiny",
        "training of all weights, only LoRA: --set model.lora.rank=32": lora is None,
        "model.lora.alpha and model.lora.targets, which the server chooses: leave them out": not usual,
        f"model.device = {model.device!r}: --set model.device=auto": model.device not in ("auto", "cpu"),
        "model.dtype and train.autocast: leave them out": model.dtype != "float32" or config.train.autocast,
        # The API does not say at which temperature a server reports log-probabilities, nor which tokens it kept.
        "rollout.temperature other than 1: --set rollout.temperature=1": config.rollout.temperature != 1,
        "rollout.top_p, top_k and min_p: leave them out": config.rollout.cut != Cut(),
        "teacher.hint: --set teacher.hint=none with a teacher.path": teacher is not None and teacher.hint is not None,
    }
    refuse(f"{ENGINE} does not have {fault}" for fault, made in faults.items() if made)
    untaught = teacher is None or teacher.path is None
    require(plan.objective, PROVIDES - {"teacher_logprob"} if untaught else PROVIDES)
    return plan.objective

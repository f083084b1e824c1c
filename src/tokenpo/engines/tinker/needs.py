"""The inputs that a server provides, and refusals of recipes and methods; `tinker` is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Never

from ...base.errors import Unsupported
from ...core.negotiation import negotiate
from ...core.objective import Objective
from ...core.ratio_check import HALF_TOLERANCE, RatioCheck
from ...core.types import FACTS, OPTIONAL
from ...recipe.config import Lora
from ...recipe.plan import Plan

ENGINE = "the Tinker engine"
# Inputs that need whole distributions or hidden states; the API returns only the log-probabilities of sampled tokens.
_LOGITS = {name for name, fact in FACTS.items() if fact.formula} | {"teacher_divergence", "influence", "divergence"}
# The engines that have them; an input that is not named is the embedded engine's alone.
_ENGINES = {
    **dict.fromkeys(("entropy", "old_entropy"), "the embedded engine, TRL or verl"),
    **dict.fromkeys(("entropy_drift", "teacher_divergence"), "the embedded engine or TRL"),
}
PROVIDES = OPTIONAL - _LOGITS - {"gain", "value", "version", "baseline", "role"}
REMEDIES: dict[str, str] = {
    name: "the API returns log-probabilities of the sampled tokens and no logits: choose a method that reads no more, "
    f"or train with {_ENGINES.get(name, 'the embedded engine')}"
    for name in sorted(_LOGITS)
} | {
    "gain": "train with the embedded engine (tokenpo train), which continues responses or scores their parts",
    "baseline": "train with the embedded engine (tokenpo train), which draws a greedy response",
    "value": "the API returns no hidden states: train with the embedded engine (tokenpo train), which has a value head",
    "teacher_logprob": "say which of the server's models the teacher is: --set teacher.path=NAME",
}
# A server's sampler and trainer are two programs, mostly in half precision.
RATIO = RatioCheck(
    ENGINE,
    "set rollout.rescore = true, which takes the old log-probs from the server's own trainer, or a larger "
    "train.ratio_tolerance",
    HALF_TOLERANCE,
    "mean",
)


def require(objective: Objective, provides: frozenset[str] = PROVIDES) -> None:
    """Raises Unsupported if an objective reads an input that no server gives, or adapts the temperature per token."""
    if objective.temperature is not None:
        raise Unsupported(
            f"{objective.name} adapts the temperature from token to token ({objective.temperature!r}), which {ENGINE} "
            "cannot ask a server for: choose another method, or train with the embedded engine, TRL or verl"
        )
    negotiate(objective, provides, ENGINE, REMEDIES)


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


def refuse_gradient(server: str, faults: Sequence[str]) -> Never:
    """Raises Unsupported for a server without a loss that takes a gradient to the weights."""
    raise Unsupported(
        f"{server} does not train along the gradient that it is sent ({'; '.join(faults)}): take another server, or "
        "have its loss changed to the plain sum of weights x log-probabilities"
    )

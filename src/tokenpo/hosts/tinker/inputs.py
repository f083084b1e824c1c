"""The inputs that a server provides, and refusals of methods; `tinker` is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Never

from ...base.errors import Unsupported, refuse
from ...core.negotiation import missing
from ...core.objective import Objective
from ...core.on_policy import HALF_TOLERANCE, RatioCheck
from ...core.types import OPTIONAL

ENGINE = "the Tinker engine"
# Inputs that need whole distributions or hidden states; the API returns only the log-probabilities of sampled tokens.
_LOGITS = {"entropy", "old_entropy", "entropy_drift", "teacher_divergence"}
# The engines that have them; an input that is not named is the embedded engine's alone.
_ENGINES = {
    **dict.fromkeys(("entropy", "old_entropy"), "the embedded engine, TRL or verl"),
    **dict.fromkeys(("entropy_drift", "teacher_divergence"), "the embedded engine or TRL"),
}
PROVIDES = OPTIONAL - _LOGITS - {"value", "version"} | {"prompt_logprob"}
REMEDIES: dict[str, str] = {
    name: "the API returns log-probabilities of the sampled tokens and no logits: choose a method that reads no more, "
    f"or train with {_ENGINES.get(name, 'the embedded engine')}"
    for name in sorted(_LOGITS)
} | {
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
    heat = (
        f"{objective.name} adapts the temperature from token to token ({objective.temperature!r}), which {ENGINE} "
        "cannot ask a server for: choose another method, or train with the embedded engine, TRL or verl"
    )
    refuse([None if objective.temperature is None else heat, *missing(objective, provides, ENGINE, REMEDIES)])


def refuse_gradient(server: str, faults: Sequence[str]) -> Never:
    """Raises Unsupported for a server without a loss that takes a gradient to the weights."""
    raise Unsupported(
        f"{server} does not train along the gradient that it is sent ({'; '.join(faults)}): take another server, or "
        "have its loss changed to the plain sum of weights x log-probabilities"
    )
